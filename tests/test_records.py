"""Records and arrays print shortly: a repr is for a debugger, and never dumps a text or an array."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import plait
from encoders import WordEncoder
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.ingest import AddReport
from plait.records import Document, Explanation, Hit, Span, TokenMatch, TokenMatches

LONG = "lorem ipsum " * 1000


def test_a_document_and_a_hit_show_the_beginning_of_their_texts() -> None:
    assert repr(Document("a", "short")) == "Document(id='a', text='short')"
    long = Document("a", LONG, LONG, {"field": LONG})
    hit = Hit("a", 0.123456, LONG, "Title", {"field": LONG}, Span(0, len(LONG)), {"bm25": 1.0})
    assert repr(hit).startswith("Hit(id='a', score=0.1235, title='Title', passage='lorem ipsum lorem")
    assert all("(12,000 characters)" in repr(record) and len(repr(record)) < 300 for record in (long, hit))


def test_an_explanation_shows_what_it_explains_and_not_every_token() -> None:
    match = TokenMatch("a", None, "b", "text", None, 0, 0.5, 1.0)
    explanation = Explanation("d", "query", 1.5, 1, Span(0, 3), (), multi=TokenMatches(1.5, (match,) * 500), dense=0.5)
    expected = "Explanation(id='d', query='query', score=1.5, rank=1, explains multi, dense)"
    assert repr(explanation) == expected
    assert repr(explanation.multi) == "TokenMatches(score=1.5, 500 matches)"


def test_arrays_show_their_sizes() -> None:
    multi = MultiVectors(np.zeros((5, 4), np.float16), np.array([0, 2, 5]))
    sparse = SparseVectors.from_items([{1: 0.5}, {2: 0.5, 7: 1.0}])
    assert repr(multi) == "MultiVectors(2 items, 5 rows of 4 x float16)"
    assert repr(sparse) == "SparseVectors(2 items, 3 entries)"
    whole = Embeddings(np.zeros((2, 3), np.float32), sparse, multi)
    assert repr(whole) == "Embeddings(2 items: dense of 3, sparse with 3 entries, multi with 5 rows of 4)"
    assert repr(Embeddings()) == "Embeddings(0 items: no kinds)"


def test_a_report_shows_counts_and_not_every_repeated_id() -> None:
    report = AddReport(added=2, unchanged=1, passages=3, repeated=["x"] * 1000, seconds=0.25)
    assert repr(report) == "AddReport(2 added, 0 updated, 1 unchanged; 3 passages; 1000 repeated ids; 0.2 s)"


def test_an_index_shows_its_path_size_and_kinds(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with plait.open(path, create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "a", "text": "one"}])
        assert repr(index) == f"<plait.Index {str(path)!r}: 1 documents, dense 16, multi 16>"
    assert repr(index) == f"<plait.Index {str(path)!r}: closed, dense 16, multi 16>"
