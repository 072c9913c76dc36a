"""Anchor queries: from a file, or made from the corpus itself."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plait.cur.matrix import check_anchor_queries
from plait.errors import ConfigError, InputError
from plait.search.live import live_documents
from plait.storage.store import Snapshot

KINDS = ("titles", "sentences")
SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
FEWEST_WORDS, MOST_WORDS = 4, 40


def queries_from_file(path: Path, *, fewest: int) -> list[str]:
    """One query a line: plain text, or JSON objects with `text` or `query`."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the anchor queries in {path}: {error}") from None
    queries = [_query(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    check_anchor_queries(queries, where=str(path), fewest=fewest)
    return queries


def _query(line: str, where: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    text = fields.get("text", fields.get("query"))
    if not isinstance(text, str):
        raise InputError(f"{where}: expected 'text' or 'query'; the object has {', '.join(fields) or 'nothing'}")
    return text


def queries_from_corpus(snapshot: Snapshot, kind: str, n: int, *, seed: int = 0) -> list[str]:
    """Titles, or sentences, of n documents drawn at random; each different."""
    if kind not in KINDS:
        raise ConfigError(f"queries are made from {', '.join(KINDS)}; not from {kind!r}")
    numbers = np.random.default_rng(seed).permutation(live_documents(snapshot))
    found: dict[str, str] = {}
    for start in range(0, len(numbers), 256):
        for document in snapshot.fetch(numbers[start : start + 256].tolist()):
            text = document.title if kind == "titles" else _sentence(document.text, seed + document.doc)
            text = " ".join(text.split()[:MOST_WORDS])
            if text:
                found.setdefault(text, text)
        if len(found) >= n:
            break
    queries = list(found)[:n]
    if len(queries) < n:
        raise InputError(
            f"the documents have {len(queries)} different {kind} to ask for, and {n} anchor queries are wanted; ask "
            f"for fewer (--n-queries), for {KINDS[kind == KINDS[0]]}, or give a file of queries"
        )
    return queries


def _sentence(text: str, seed: int) -> str:
    sentences = [one.strip() for one in SENTENCE.findall(text) if len(one.split()) >= FEWEST_WORDS]
    return sentences[seed % len(sentences)] if sentences else ""


def dev_split(queries: Sequence[str], *, seed: int = 0) -> tuple[list[int], list[int]]:
    """Which queries are rows of the matrix while settings are chosen, and which choose: a fifth, at most 50."""
    order = np.random.default_rng(seed).permutation(len(queries)).tolist()
    n_dev = min(50, max(1, len(queries) // 5))
    return sorted(order[n_dev:]), sorted(order[:n_dev])
