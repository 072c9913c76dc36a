"""sparse.plait: written, merged and checked; damaged files are refused by name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plait.codec.impacts import invert
from plait.embeddings import Embeddings, SparseVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import CorruptIndexError, InputError
from plait.records import Document, Span
from plait.scoring.sparse import Impacts
from plait.search.query import QueryBatch
from plait.search.sparse import Sparse
from plait.search.trace import Trace
from plait.storage import verification
from plait.storage.check import check
from plait.storage.files import sparse as sparse_file
from plait.storage.info import info
from plait.storage.store import Store
from storage.resealed import index_of, put, rewrite
from storage.samples import make_store
from storage.test_damage import flip

VOCABULARY = 60
SPEC = EmbeddingSpec(sparse=VOCABULARY)
FIELDS = ("terms", "offsets", "rows", "impacts", "scales", "peaks", "frequent", "maxima")  # of Impacts
ARRAYS = ("terms", "offsets", "rows", "impacts", "row_scales", "max_weights", "frequent_terms", "window_maxima")


def rows(first: int, count: int) -> list[dict[int, float]]:
    rng = np.random.default_rng(first)
    return [
        {int(term): float(rng.gamma(2)) + 0.01 for term in rng.choice(VOCABULARY, n % 6, replace=False)}
        for n in range(first, first + count)
    ]


def add(store: Store, first: int, count: int) -> None:
    documents = [Document(f"d{n}", f"text {n}") for n in range(first, first + count)]
    with store.writer() as writer:
        embeddings = Embeddings(sparse=SparseVectors.from_items(rows(first, count)))
        writer.write(documents, [[Span(0, len(document.text))] for document in documents], embeddings)


def impacts_of(store: Store) -> list[Impacts]:
    with store.snapshot() as snapshot:
        found = [segment.sparse for segment in snapshot.segments]
    return [one for one in found if one is not None]


def assert_equal(a: Impacts, b: Impacts) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_a_segment_holds_the_index_of_its_batch(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index", spec=SPEC)
    add(store, 0, 30)
    (stored,) = impacts_of(store)
    assert_equal(stored, invert(SparseVectors.from_items(rows(0, 30))))
    assert check(store.path).problems == []
    assert info(store).bytes_by_part["sparse"] > 0


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_merging_gives_the_bytes_of_writing_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(sparse_file, "BLOCK_POSTINGS", block)
    store = make_store(tmp_path / "index", spec=SPEC)
    for first in (0, 20, 40):
        add(store, first, 20)
    with store.writer() as writer:
        writer.delete(["d3", "d25", "d59"])
        writer.compact()
    (merged,) = impacts_of(store)
    kept = [row for n, row in enumerate(rows(0, 20) + rows(20, 20) + rows(40, 20)) if n not in (3, 25, 59)]
    assert_equal(merged, invert(SparseVectors.from_items(kept)))
    assert check(store.path).problems == []


def test_an_index_without_live_documents_can_be_compacted(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index", spec=SPEC)
    add(store, 0, 4)
    with store.writer() as writer:
        writer.delete(["d0", "d1", "d2", "d3"])
        writer.compact()
    assert impacts_of(store) == []
    add(store, 6, 1)  # a document without a term
    assert check(store.path).problems == []


@pytest.mark.parametrize(
    ("terms", "weights"),
    [
        ([5, 5], [1, 1]),
        ([5, 4], [1, 1]),
        ([-1], [1]),
        ([VOCABULARY], [1]),
        ([1], [-1]),
        ([1], [np.inf]),
        ([1], [np.nan]),
    ],
)
def test_invalid_sparse_vectors_are_refused(tmp_path: Path, terms: list[int], weights: list[float]) -> None:
    store = make_store(tmp_path / "index", spec=SPEC)
    sparse = SparseVectors(np.array(terms, np.int32), np.array(weights, np.float32), np.array([0, len(terms)]))
    with store.writer() as writer, pytest.raises(InputError, match=r"document 'a'.*term"):
        writer.write([Document("a", "b")], [[Span(0, 1)]], Embeddings(sparse=sparse))


def test_missing_sparse_vectors_are_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index", spec=SPEC)
    with store.writer() as writer, pytest.raises(InputError, match="sparse vectors are missing"):
        writer.write([Document("a", "b")], [[Span(0, 1)]], Embeddings())
    with pytest.raises(InputError, match="must ascend"):
        SparseVectors(np.zeros(2, np.int32), np.ones(2, np.float32), np.array([0, 1]))


# -- damage


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = make_store(tmp_path_factory.mktemp("sparse") / "index", spec=SPEC)
    add(store, 0, 40)
    return store.path


@pytest.fixture
def file(made: Path, tmp_path: Path) -> Path:
    """The sparse.plait of a copy of the index, as a new process would see it."""
    verification.forget()
    shutil.copytree(made, tmp_path / "index")
    return tmp_path / "index" / "segments" / "000001" / "sparse.plait"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "truncated"),
        (lambda file: file.write_bytes(b""), "has 0 bytes"),
        (lambda file: flip(file, 60), "does not match its checksum"),
        (lambda file: flip(file, -9), "is damaged"),
        (lambda file: file.unlink(), "is missing"),
    ],
    ids=["cut", "emptied", "header", "end", "removed"],
)
def test_a_damaged_file_is_refused_by_name(file: Path, harm: Callable[[Path], None], message: str) -> None:
    harm(file)
    with (
        pytest.raises(CorruptIndexError, match=rf"sparse\.plait.* {message}"),
        Store.open(index_of(file)).snapshot() as snapshot,
    ):
        _ = snapshot.segments[0].sparse
    assert not check(index_of(file)).ok


def search(index: Path) -> int:
    asked = dict.fromkeys(range(VOCABULARY), 1.0)
    batch = QueryBatch(["q"], Embeddings(sparse=SparseVectors.from_items([asked])))
    with Store.open(index).snapshot() as snapshot:
        return len(Sparse().retrieve(snapshot, batch, 10, None, Trace())[0])


def test_a_file_that_is_rewritten_unchanged_is_valid(file: Path) -> None:
    rewrite(file, lambda *_: None)
    assert search(index_of(file)) == 10
    assert check(index_of(file)).problems == []


@pytest.mark.parametrize(
    "change",
    [
        *(lambda arrays, _, name=name: arrays.pop(name) for name in ARRAYS),
        *(lambda arrays, _, name=name: arrays.update({name: arrays[name][:-1]}) for name in ARRAYS if name != "terms"),
        *(lambda _, attributes, value=value: attributes.update(window_rows=value) for value in (None, 0, "1", 1 << 40)),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_refused(file: Path, change: Any) -> None:
    rewrite(file, change)
    with pytest.raises(CorruptIndexError, match=r"sparse\.plait"):
        _ = Store.open(index_of(file)).snapshot().segments[0].sparse
    assert not check(index_of(file)).ok


HUGE = np.iinfo(np.int64).max


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("offsets", 0, 1), "offsets must ascend"),
        (put("offsets", 3, -HUGE), "offsets must ascend"),
        (put("offsets", -1, HUGE), "offsets must ascend"),
        (put("terms", 0, -1), "terms go from"),
        (put("terms", -1, VOCABULARY), "terms go from"),
        (put("terms", 2, 0), "terms do not ascend"),
        (put("frequent_terms", -1, 999), "window maxima"),
        (put("row_scales", 1, np.nan), "row_scales out of range"),
        (put("max_weights", 1, np.inf), "max_weights out of range"),
    ],
)
def test_invalid_values_are_refused_at_first_use(file: Path, change: Any, message: str) -> None:
    rewrite(file, change)
    with Store.open(index_of(file)).snapshot() as snapshot, pytest.raises(CorruptIndexError, match=message):
        _ = snapshot.segments[0].sparse
    assert not check(index_of(file)).ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("rows", slice(None), 1 << 31), "names row"),
        (put("rows", 0, 39), "do not ascend|impacts and scales do not match"),
        (put("impacts", 0, 0), "impacts and scales do not match"),
        (put("impacts", slice(None), 7), "impacts and scales do not match"),
        (put("row_scales", 0, 1.0), "impacts and scales do not match"),  # a row without terms
        (put("row_scales", 1, 9.0), "max_weights do not match"),
        (put("max_weights", 0, 1e9), "max_weights do not match"),
        (put("window_maxima", (0, 0), 1), "window_maxima do not match"),
    ],
)
def test_check_compares_everything_with_the_postings(file: Path, change: Any, message: str) -> None:
    rewrite(file, change)
    search(index_of(file))  # wrong, perhaps, and nothing worse
    (problem,) = check(index_of(file)).problems
    assert "sparse.plait" in problem
    assert re.search(message, problem)
