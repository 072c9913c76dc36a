"""Every format that was ever released opens for ever: a small index of each number is kept here."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from plait.encode.protocol import StrandShape
from plait.index.catalogue import FORMAT
from plait.index.check import check
from plait.index.store import Store
from plait.records import Document, Span
from plait.strands import Strands

HERE = Path(__file__).parent


@pytest.fixture
def index_1(tmp_path: Path) -> Path:
    """A copy: opening leaves SQLite's files beside the database."""
    return Path(shutil.copytree(HERE / "index-1", tmp_path / "index"))


def test_every_format_number_has_its_index() -> None:
    assert sorted(path.name for path in HERE.glob("index-*")) == [f"index-{number}" for number in range(1, FORMAT + 1)]


def test_format_1_describes_itself(index_1: Path) -> None:
    store = Store.open(index_1)
    assert (store.format, store.fingerprint, store.facts) == (1, "by hand", {"model": "none"})
    assert store.shape == StrandShape(dense=3, multi=2)
    assert check(index_1).problems == []


def test_format_1_keeps_its_documents(index_1: Path) -> None:
    with Store.open(index_1).snapshot() as snapshot:
        assert (snapshot.n_documents, snapshot.n_rows) == (3, 4)
        assert snapshot.lookup(["gone", "wool", "silk", "茶/1"]) == {"wool": 2, "silk": 5, "茶/1": 4}
        wool, tea, silk = snapshot.fetch([2, 4, 5])
        assert (wool.title, wool.text) == ("Wool", "Wool is spun into yarn. Then it is woven.")
        assert wool.metadata == {"year": 1764, "tags": ["animal", "warm"]}
        assert (tea.title, tea.text, tea.metadata) == ("お茶", "京都の緑茶", {"origin": None, "rating": 4.5})
        assert (silk.text, silk.metadata) == ("Silk comes from the cocoon of a moth.", {"year": -3000})
        assert (wool.segment, wool.first_row, wool.n_rows) == (1, 1, 2)


def test_format_1_keeps_its_words(index_1: Path) -> None:
    with Store.open(index_1).snapshot() as snapshot:
        found = {
            query: snapshot.bm25(query, 5)[0].tolist() for query in ("weaving woven", "緑茶", "old", "deleted", "moths")
        }
        assert found == {"weaving woven": [2], "緑茶": [4], "old": [], "deleted": [], "moths": [5]}


def test_format_1_keeps_its_rows(index_1: Path) -> None:
    with Store.open(index_1).snapshot() as snapshot:
        first, second = snapshot.segments
        assert (first.docs.tolist(), second.docs.tolist()) == ([1, 2, 2, 3, 4], [5])
        assert (first.starts.tolist(), first.ends.tolist()) == ([0, 0, 24, 0, 0], [21, 23, 41, 28, 5])
        assert first.live is not None
        assert (first.live.tolist(), second.live) == ([False, True, True, False, True], None)
        np.testing.assert_array_equal(first.dense, [[n, n + 0.5, n + 1] for n in range(5)])
        np.testing.assert_array_equal(second.dense, [[5, 5.5, 6]])
        assert first.multi is not None
        assert first.multi.values.dtype == np.float16
        assert first.multi.offsets.tolist() == [0, 1, 3, 4, 6, 7]
        np.testing.assert_array_equal(first.multi[3], [[3, -3], [3, -3]])


def test_format_1_can_be_written_to(index_1: Path) -> None:
    store = Store.open(index_1)
    with store.writer() as writer:
        assert writer.delete(["wool"]) == 1
    with Store.create(index_1.parent / "new", fingerprint="f", shape=StrandShape(), facts={}).writer() as writer:
        writer.write([Document("a", "wool")], [[Span(0, 4)]], Strands())
    with store.snapshot() as snapshot:
        assert (snapshot.n_documents, snapshot.bm25("wool woven", 5)[0].tolist()) == (2, [])
    assert check(index_1).problems == []
