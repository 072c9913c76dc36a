"""An index for the tests of integrations, and a scorer of pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import plait
from encoders import WordEncoder
from plait.rerank.cross_encoder import OnBatch

ARTICLES: list[dict[str, Any]] = [
    {"id": "intro", "text": "Vectors are combined: each is mixed with its neighbours.", "year": 2024, "lang": "en"},
    {"id": "loom", "text": "A loom crosses warp and weft.", "year": 2019, "lang": "en", "tags": ["tool", "cloth"]},
    {"id": "webstuhl", "text": "Ein Webstuhl kreuzt Kette und Schuss.", "year": 2021, "lang": "de"},
    {"id": "heart", "text": "The heart pumps blood through the body.", "year": 2022, "lang": "en", "tags": ["organ"]},
]
HAYSTACK: dict[str, Any] = {
    "id": "haystack",
    "title": "Haystack",
    "text": " ".join(["hay straw grass"] * 60 + ["a needle lies here"] + ["straw grass hay"] * 60),
    "year": 2000,
    "lang": "en",
}


def make_index(folder: Path, *, long: bool = False, encoder: WordEncoder | None = None) -> plait.Index:
    """An index of four short articles; with `long`, also of one with several passages."""
    index = plait.open(folder / "index", create=True, encoder=encoder or WordEncoder())
    index.add([*ARTICLES, HAYSTACK] if long else ARTICLES)
    return index


class OverlapScorer:
    """Scores a pair by the number of words that query and document share."""

    fingerprint = "overlap"

    def score(self, pairs: Sequence[tuple[str, str]], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        del on_batch
        return np.array([len(words(query) & words(document)) for query, document in pairs], np.float32)


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
