"""Texts of the corpora that a recipe names, for what is counted or fitted before training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from plait.encode.chunking import with_title
from plait.errors import InputError
from plait.evaluate.dataset_files import find_file
from plait.readers import documents_from


def corpus_batches(folders: Sequence[str], *, limit: int, size: int, key: str) -> Iterator[list[str]]:
    """The first `limit` documents of each BEIR folder, 0 for all, `size` at a time. `key` of the recipe names them."""
    for folder in folders:
        corpus = find_file(Path(folder), "corpus.jsonl")
        if corpus is None:
            raise InputError(f"{folder} has no corpus.jsonl; {key} must name BEIR folders")
        texts = (with_title(document.title, document.text) for document in documents_from([corpus]))
        rest = iter(itertools.islice(texts, limit or None))
        while batch := list(itertools.islice(rest, size)):
            yield batch
