"""Anchor queries: read from a file, or made from the documents; checks, and a split for dev."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plait.checks import parse_json
from plait.cur.algebra import MIN_QUERIES
from plait.errors import ConfigError, InputError
from plait.search.filtering import live_documents
from plait.storage.store import Snapshot

CORPUS_SOURCES = ("titles", "sentences")
SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
MIN_SENTENCE_WORDS, MAX_QUERY_WORDS = 4, 40
MAX_DEV_QUERIES = 50
FETCH_SIZE = 256  # documents read at a time
N_SHOWN = 3  # repeated queries that an error quotes


def queries_from_file(path: Path, *, minimum: int) -> list[str]:
    """One query in each line: plain text, or a JSON object with `text` or `query`. InputError for fewer than
    `minimum`."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the anchor queries in {path}: {error}") from None
    queries = [_parse_query(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    check_anchor_queries(queries, where=str(path), minimum=minimum)
    return queries


def _parse_query(line: str, where: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        fields = parse_json(line)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    text = fields.get("text", fields.get("query"))
    if not isinstance(text, str):
        raise InputError(f"{where}: expected 'text' or 'query'; the object has {', '.join(fields) or 'nothing'}")
    return text


def queries_from_corpus(snapshot: Snapshot, source: str, n: int, *, seed: int = 0) -> list[str]:
    """n distinct titles, or sentences, of randomly drawn documents."""
    if source not in CORPUS_SOURCES:
        raise ConfigError(f"anchor queries can be made from {' or '.join(CORPUS_SOURCES)}; got {source!r}")
    docs = np.random.default_rng(seed).permutation(live_documents(snapshot))
    texts: dict[str, None] = {}  # a set that keeps its order
    for start in range(0, len(docs), FETCH_SIZE):
        for document in snapshot.fetch(docs[start : start + FETCH_SIZE].tolist()):
            text = document.title if source == "titles" else _pick_sentence(document.text, seed + document.doc)
            text = " ".join(text.split()[:MAX_QUERY_WORDS])
            if text:
                texts.setdefault(text)
        if len(texts) >= n:
            break
    queries = list(texts)[:n]
    if len(queries) < n:
        other = CORPUS_SOURCES[source == CORPUS_SOURCES[0]]
        raise InputError(
            f"the documents have {len(queries)} different {source}, and {n} anchor queries are wanted; ask for fewer "
            f"(--n-queries), take {other}, or give a file of queries"
        )
    return queries


def _pick_sentence(text: str, seed: int) -> str:
    matches = SENTENCE.findall(text)
    sentences = [sentence.strip() for sentence in matches if len(sentence.split()) >= MIN_SENTENCE_WORDS]
    return sentences[seed % len(sentences)] if sentences else ""


def check_anchor_queries(queries: Sequence[str], *, where: str, minimum: int = MIN_QUERIES) -> None:
    """Refuses too few, empty or repeated anchor queries: a repeated row costs calls and adds no information."""
    if len(queries) < minimum:
        raise InputError(f"{where} has {len(queries)} queries, and {minimum} are needed as anchors; add more")
    for number, query in enumerate(queries, 1):
        if not query.strip():
            raise InputError(f"{where}: query {number} is empty; leave it out")
    repeated = [query for query, n in Counter(" ".join(query.split()) for query in queries).items() if n > 1]
    if repeated:
        examples = ", ".join(repr(query[:60]) for query in repeated[:N_SHOWN])
        raise InputError(f"{where} has {len(repeated)} queries more than once ({examples}); keep each once")


def dev_split(queries: Sequence[str], *, seed: int = 0) -> tuple[list[int], list[int]]:
    """Indices of (matrix rows, dev queries): a fifth of the queries, at most 50, are for dev."""
    order = np.random.default_rng(seed).permutation(len(queries)).tolist()
    n_dev = min(MAX_DEV_QUERIES, max(1, len(queries) // 5))
    return sorted(order[n_dev:]), sorted(order[:n_dev])
