"""Adding, replacing, deleting, compacting and reopening in any order: the index is a dictionary that survives."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.search.bm25 import bm25_search
from plait.storage.check import check
from plait.storage.segment import Segment
from plait.storage.store import Snapshot, Store
from storage.samples import make_store

SPEC = EmbeddingSpec(dense=1, multi=8)
WORDS = ["wool", "linen", "silk", "東京", "ไทย", "jute"]
IDS = st.sampled_from(["a", "b", "c", "d", "e"])
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)


class IndexAgainstDict(RuleBasedStateMachine):
    """The text of a document says its passages: one a word, with vectors that are the word's number."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="plait-"))
        self.store = make_store(self.folder / "index", spec=SPEC)
        self.expected: dict[str, list[str]] = {}
        self.write({"all": WORDS * 48})  # enough of each to fit a codec that knows them
        self.kept: tuple[Snapshot, dict[str, list[str]]] | None = None

    @rule(batch=st.dictionaries(IDS, TEXTS, max_size=4))
    def add(self, batch: dict[str, list[str]]) -> None:
        self.write(batch)

    def write(self, batch: dict[str, list[str]]) -> None:
        documents = [Document(id, " ".join(words)) for id, words in batch.items()]
        words = [word for own in batch.values() for word in own]
        values = np.asarray([WORDS.index(word) for word in words], np.float32).reshape(-1, 1)
        one_hot = np.eye(8, dtype=np.float32)[values[:, 0].astype(int)]
        embeddings = Embeddings(dense=values, multi=MultiVectors(one_hot, np.arange(len(words) + 1)))
        with self.store.writer() as writer:
            written = writer.write(documents, [spans_of(own) for own in batch.values()], embeddings)
        assert written.n_replaced == len(batch.keys() & self.expected.keys())
        self.expected = {**self.expected, **batch}

    @rule(ids=st.lists(IDS, max_size=3))
    def delete(self, ids: list[str]) -> None:
        with self.store.writer() as writer:
            assert writer.delete(ids) == len(set(ids) & self.expected.keys())
        self.expected = {id: words for id, words in self.expected.items() if id not in ids}

    @rule(retrain=st.booleans())
    def compact(self, retrain: bool) -> None:
        with self.store.writer() as writer:
            done = writer.compact(bits=8, retrain=retrain)
        assert (done.n_documents, done.n_segments_after, done.bits) == (len(self.expected), 1, 8)
        assert done.n_vectors == sum(map(len, self.expected.values()))

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open(self.store.path)

    @precondition(lambda self: self.kept is None)
    @rule()
    def keep_a_snapshot(self) -> None:
        self.kept = (self.store.snapshot(), self.expected)

    @precondition(lambda self: self.kept is not None)
    @rule()
    def let_it_go(self) -> None:
        assert self.kept is not None
        self.kept[0].close()
        self.kept = None

    @invariant()
    def the_newest_snapshot_is_the_dictionary(self) -> None:
        with self.store.snapshot() as snapshot:
            compare(snapshot, self.expected)

    @invariant()
    def the_kept_snapshot_has_not_changed(self) -> None:
        if self.kept is not None:
            compare(*self.kept)

    def teardown(self) -> None:
        if self.kept is not None:
            self.kept[0].close()
        assert check(self.store.path).problems == []
        shutil.rmtree(self.folder)


def spans_of(words: list[str]) -> list[Span]:
    spans, start = [], 0
    for word in words:
        spans.append(Span(start, start + len(word)))
        start += len(word) + 1
    return spans


def vectors_of(segment: Segment) -> NDArray[np.floating]:
    """The vectors, one for each row; of codes, what they stand for."""
    if segment.coded is not None:
        return segment.coded.codec.decode(segment.coded.rows)
    assert segment.multi is not None
    return segment.multi.values


def compare(snapshot: Snapshot, expected: dict[str, list[str]]) -> None:
    docs = snapshot.lookup(list(expected))
    assert (snapshot.n_documents, set(docs)) == (len(expected), set(expected))
    assert snapshot.n_rows == sum(map(len, expected.values()))
    by_number = {segment.number: segment for segment in snapshot.segments}
    for document in snapshot.fetch(list(docs.values())):
        segment, words = by_number[document.segment], expected[document.id]
        rows = slice(document.first_row, document.first_row + document.n_rows)
        assert segment.live is None or segment.live[rows].all()
        assert segment.dense is not None
        assert [WORDS[int(value)] for value in segment.dense[rows, 0]] == words
        assert [WORDS[int(number)] for number in vectors_of(segment)[rows].argmax(axis=1)] == words
        spans = zip(segment.starts[rows], segment.ends[rows], strict=True)
        assert [document.text[start:end] for start, end in spans] == words
    for word in WORDS:
        found, _ = bm25_search(snapshot, word, 10)
        assert set(snapshot.fetch_ids(found.tolist())) == {id for id, words in expected.items() if word in words}


TestIndexAgainstDict = IndexAgainstDict.TestCase
TestIndexAgainstDict.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
