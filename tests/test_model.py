"""Adding, replacing, deleting, merging and compacting in any order: a search finds what a dictionary would."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

import plait
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.records import Hit
from plait.storage.check import check

DIM = 8
WORDS = ["wool", "linen", "silk", "jute", "hemp"]
NAMES = [f"d{number}" for number in range(12)]
IDS = st.sampled_from(NAMES)
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(tuple)
Texts = dict[str, tuple[str, ...]]
EVERY = ("linen", "hemp")  # what is asked for after every step


def rows_of(words: tuple[str, ...]) -> NDArray[np.float32]:
    """A vector of small whole numbers for each word: sums of their products are exact in any order and precision."""
    seeds = [WORDS.index(word) for word in words]
    return np.array([np.random.default_rng(seed).integers(-3, 4, DIM) for seed in seeds], np.float32)


def embeddings_of(texts: list[tuple[str, ...]]) -> Embeddings:
    rows = [rows_of(words) for words in texts]
    dense = np.array([item.sum(axis=0) for item in rows], np.float32).reshape(-1, DIM)
    return Embeddings(dense=dense, multi=MultiVectors.from_items(rows, dim=DIM))


class SearchAgainstDict(RuleBasedStateMachine):
    """One handle writes and another reads, which sees what there was at its last refresh."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="plait-"))
        self.now: Texts = {}
        self.seen: Texts = {}

    @initialize(texts=st.lists(TEXTS, min_size=6, max_size=6), dead=IDS)
    def open(self, texts: list[tuple[str, ...]], dead: str) -> None:
        """Two segments of three documents, one of which may be deleted: most states that break are near to this one."""
        path = self.folder / "index"
        self.writing = plait.open(path, create=True, spec=EmbeddingSpec(dense=DIM, multi=DIM), n_threads=1)
        self.reading = plait.open(path, read_only=True, n_threads=1)
        len(self.reading)  # it has a view now
        for part in (slice(0, 3), slice(3, 6)):
            self.add(dict(zip(NAMES[part], texts[part], strict=True)))
        self.delete([dead])

    @rule(batch=st.dictionaries(IDS, TEXTS, max_size=5))
    def add(self, batch: Texts) -> None:
        documents = [{"id": id, "text": " ".join(words), "n_words": len(words)} for id, words in batch.items()]
        self.writing.add_embeddings(documents, embeddings_of(list(batch.values())))
        self.now = {**self.now, **batch}

    @rule(ids=st.lists(IDS, max_size=4))
    def delete(self, ids: list[str]) -> None:
        assert self.writing.delete(ids) == len(set(ids) & self.now.keys())
        self.now = {id: words for id, words in self.now.items() if id not in ids}

    @rule(n_words=st.integers(1, 4))
    def delete_by_a_filter(self, n_words: int) -> None:
        remaining = {id: words for id, words in self.now.items() if len(words) != n_words}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", plait.UnknownFieldWarning)  # an empty index has no fields
            assert self.writing.delete(filter=f"n_words = {n_words}") == len(self.now) - len(remaining)
        self.now = remaining

    @rule()
    def compact(self) -> None:
        self.writing.compact()

    @rule()
    def refresh(self) -> None:
        self.reading.refresh()
        self.seen = self.now
        assert len(self.reading) == len(self.seen)

    @rule(
        query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(tuple),
        k=st.integers(1, 8),
        mode=st.sampled_from(["dense", "multi"]),
        at_least=st.none() | st.integers(1, 4),
    )
    def search(self, query: tuple[str, ...], k: int, mode: str, at_least: int | None) -> None:
        filter = None if at_least is None else f"n_words >= {at_least}"
        for index, texts in ((self.writing, self.now), (self.reading, self.seen)):
            hits = index.search_embeddings(embeddings_of([query]), k, mode=mode, filter=filter)[0]
            among = {id: words for id, words in texts.items() if at_least is None or len(words) >= at_least}
            compare(hits, {id: score(query, words, mode) for id, words in among.items()}, k)

    @invariant()
    def all_that_is_there_is_found(self) -> None:
        if hasattr(self, "reading"):
            for mode in ("dense", "multi"):
                self.search(EVERY, 50, mode, None)

    @rule(word=st.sampled_from(WORDS))
    def search_words(self, word: str) -> None:
        for index, texts in ((self.writing, self.now), (self.reading, self.seen)):
            texts_by_id = {hit.id: hit.text for hit in index.search(word, 50, mode="bm25")}
            assert texts_by_id == {id: " ".join(words) for id, words in texts.items() if word in words}

    def teardown(self) -> None:
        if hasattr(self, "writing"):
            self.reading.close()
            self.writing.close()
            assert check(self.folder / "index").problems == []
        shutil.rmtree(self.folder)


def score(query: tuple[str, ...], words: tuple[str, ...], mode: str) -> float:
    products = rows_of(query) @ rows_of(words).T
    return float(products.sum() if mode == "dense" else products.max(axis=1).sum())


def compare(hits: list[Hit], scores: dict[str, float], k: int) -> None:
    """The best k, each once; which of equals comes is free."""
    assert [hit.score for hit in hits] == sorted(scores.values(), reverse=True)[:k]
    assert {hit.id: hit.score for hit in hits}.items() <= scores.items()
    assert len({hit.id for hit in hits}) == len(hits)


TestSearchAgainstDict = SearchAgainstDict.TestCase
TestSearchAgainstDict.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
