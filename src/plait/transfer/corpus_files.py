"""Exports of texts alone, for evaluation tools: a BEIR corpus, a TREC text file, MS MARCO's tab-separated values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.sax.saxutils import escape

from plait.encode.chunking import with_title
from plait.errors import ConfigError
from plait.transfer.passages import Passages

_SPACE = re.compile(r"\s+")


def write_beir(passages: Passages, to: Path) -> int:
    """Writes corpus.jsonl into a new folder: _id, title, text and metadata of each document."""
    to.mkdir()
    n_documents = 0
    with (to / "corpus.jsonl").open("w", encoding="utf-8") as lines:
        for batch in passages.batches():
            for document in batch.documents:
                texts = {"_id": document.id, "title": document.title, "text": document.text}
                fields = {**texts, "metadata": dict(document.metadata)}
                lines.write(json.dumps(fields, ensure_ascii=False) + "\n")
            n_documents += len(batch.documents)
    return n_documents


def write_trec(passages: Passages, to: Path) -> int:
    """Writes a TREC text file: a <DOC> with <DOCNO>, <TITLE> and <TEXT> for each document."""
    n_documents = 0
    with to.open("w", encoding="utf-8") as lines:
        for batch in passages.batches():
            for document in batch.documents:
                _check_id(document.id)
                title = f"<TITLE>{escape(document.title)}</TITLE>\n" if document.title else ""
                number = f"<DOCNO>{escape(document.id)}</DOCNO>"
                lines.write(f"<DOC>\n{number}\n{title}<TEXT>\n{escape(document.text)}\n</TEXT>\n</DOC>\n")
            n_documents += len(batch.documents)
    return n_documents


def write_tsv(passages: Passages, to: Path) -> int:
    """Writes a line for each document: its id, a tab, and its title and text with single spaces."""
    n_documents = 0
    with to.open("w", encoding="utf-8") as lines:
        for batch in passages.batches():
            for document in batch.documents:
                _check_id(document.id)
                lines.write(f"{document.id}\t{_SPACE.sub(' ', with_title(document.title, document.text)).strip()}\n")
            n_documents += len(batch.documents)
    return n_documents


def _check_id(id: str) -> None:
    if _SPACE.search(id):
        raise ConfigError(f"the id {id!r:.60} has a space, which run files of TREC cannot hold; use --format beir")
