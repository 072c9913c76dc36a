"""Wrong arguments to every public call: the call works, or raises an error of plait that says what to do.

The table names calls and their parameters; each parameter is tried with every value of WRONG. A TypeError is right only
for a wrong number or name of arguments, which are not tried here.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from encoders import WordEncoder
from plait.errors import PlaitError


class Hostile:
    """An object that has nothing and cannot be compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    def __repr__(self) -> str:
        return "Hostile()"


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


# By name, so that every test gets a value of its own: a generator can be read only once.
WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "2**70": lambda: 2**70,
    "1.5": lambda: 1.5,
    "nan": lambda: math.nan,
    "empty text": lambda: "",
    "text": lambda: "x",
    "text with NUL": lambda: "a\0b",
    "half a character": lambda: "\ud800",
    "bytes": lambda: b"x",
    "empty list": list,
    "list of None": lambda: [None],
    "list of numbers": lambda: [1, 2],
    "list of lists": lambda: [["x"]],
    "list of texts": lambda: ["x", "y"],
    "mapping": lambda: {"x": 1},
    "deep mapping": lambda: deep(5000),
    "set": lambda: {"x"},
    "array": lambda: np.zeros(3, np.float32),
    "array of texts": lambda: np.array(["x"]),
    "matrix": lambda: np.zeros((2, 4), np.float32),
    "generator": lambda: (x for x in ["x"]),
    "class": lambda: int,
    "function": lambda: len,
    "object": object,
    "hostile": Hostile,
}

VECTORS = plait.Embeddings(dense=np.ones((1, 16), np.float32))
MODES = ["hybrid", "dense", "bm25", "multi"]


@dataclasses.dataclass(frozen=True)
class Call:
    """A call with arguments that work, and the names of those that are tried with wrong values."""

    name: str
    run: Callable[..., object]  # (index, **arguments)
    right: dict[str, Any]


def calls() -> Iterator[Call]:
    search = {
        "k": 3,
        "mode": "bm25",
        "params": None,
        "filter": None,
        "candidates": None,
        "exact": False,
        "rerank": None,
        "explain": False,
        "trace": None,
        "timeout": None,
        "offset": 0,
        "sort": None,
        "group_by": None,
        "window": 10,
        "passages": 1,
    }
    without_k = {name: value for name, value in search.items() if name != "k"}
    yield Call("search", lambda index, **given: index.search(**given), {"query": "wool", **search})
    yield Call("search hybrid", lambda index, **given: index.search(**given), {"query": "wool", "k": 3, "filter": None})
    yield Call("search_many", lambda index, **given: index.search_many(**given), {"queries": ["wool"], **search})
    yield Call(
        "search_embeddings",
        lambda index, **given: index.search_embeddings(**given),
        {"embeddings": VECTORS, "k": 3, "texts": None, "mode": "dense", "filter": None, "candidates": None},
    )
    yield Call("explain", lambda index, **given: index.explain(**given), {"query": "wool", "hit": "a", **without_k})
    yield Call("SearchRequest", lambda _, **given: plait.SearchRequest(**given), dict(search))
    yield Call(
        "add",
        lambda index, **given: index.add(**given),
        {"documents": [], "commit_every": 10, "chunker": None, "merge": True, "on_progress": None},
    )
    document = {"id": "new", "text": "linen", "title": "", "metadata": {}}
    yield Call("add a document", lambda index, **given: index.add([given]), document)
    yield Call("add a Document", lambda index, **given: index.add([plait.Document(**given)]), document)
    yield Call("add metadata", lambda index, **given: index.add([{"id": "m", "text": "felt", **given}]), {"x": 1})
    yield Call(
        "add nested metadata", lambda index, x: index.add([{"id": "m", "text": "felt", "x": [{"y": x}]}]), {"x": 1}
    )
    yield Call(
        "add_embeddings",
        lambda index, **given: index.add_embeddings(**given),
        {"documents": [], "embeddings": VECTORS, "spans": None, "merge": True},
    )
    yield Call("delete", lambda index, ids, merge: index.delete(ids, merge=merge), {"ids": ["nothing"], "merge": True})
    yield Call(
        "delete by filter",
        lambda index, **given: index.delete(**given),
        {"filter": "year = 1", "timeout": None},
    )
    yield Call("create_field_index", lambda index, **given: index.create_field_index(**given), {"name": "year"})
    compact = {"bits": None, "keep_8bit": None, "retrain": False, "pooling": None}
    yield Call("compact", lambda index, **given: index.compact(**given), compact)
    yield Call("get", lambda index, **given: index.get(**given), {"ids": ["a"], "timeout": None})
    yield Call("in", lambda index, id: id in index, {"id": "a"})
    yield Call("count", lambda index, **given: index.count(**given), {"filter": None, "timeout": None})
    yield Call(
        "iterate",
        lambda index, **given: list(index.iterate(**given)),
        {"batch_size": 10, "filter": None, "sort": None, "timeout": None},
    )
    yield Call(
        "facets",
        lambda index, **given: index.facets(**given),
        {"field": "year", "query": None, "k": 3, "filter": None, "window": 10, "timeout": None},
    )
    yield Call(
        "similar",
        lambda index, **given: index.similar(**given),
        {"id": "a", "k": 3, "text": None, "embeddings": None, "filter": None, "offset": 0, "mode": "hybrid"},
    )
    yield Call(
        "update_metadata",
        lambda index, **given: index.update_metadata(**given),
        {"changes": {"a": {"year": 1}}, "replace": False},
    )
    yield Call(
        "Chunking",
        lambda _, **given: plait.Chunking(**given),
        {"size": 10, "overlap": 0, "by": "tokens", "late": False},
    )
    yield Call("lookup", lambda index, ids: index.snapshot.lookup(ids), {"ids": ["a"]})
    yield Call(
        "tune_fusion",
        lambda index, **given: index.tune_fusion(**given),
        {"queries": {"q": "wool"}, "qrels": {"q": {"a": 1}}},
    )
    opened = {
        "create": False,
        "model": None,
        "spec": None,
        "pooling": None,
        "language": None,
        "precision": None,
        "n_threads": None,
        "read_only": False,
        "write_timeout": 30.0,
        "preload": None,
    }
    yield Call("open", lambda index, path=None, **given: plait.open(path or index.path, **given).close(), opened)
    yield Call("open a path", lambda _, path: plait.open(path).close(), {"path": "missing"})
    yield Call(
        "open with encoder",
        lambda index, encoder: plait.open(index.path, encoder=encoder).close(),
        {"encoder": WordEncoder()},
    )
    yield Call("Index.open", lambda _, path: plait.Index.open(path).close(), {"path": "missing"})
    yield Call("load_model", lambda _, **given: plait.load_model(**given), {"model": None, "n_threads": None})
    yield Call("load_reranker", lambda _, **given: plait.load_reranker(**given), {"model": "missing", "depth": 5})
    yield Call(
        "Embeddings", lambda _, **given: plait.Embeddings(**given), {"dense": None, "sparse": None, "multi": None}
    )
    rows = np.zeros((2, 4), np.float32)
    offsets = np.array([0, 2])
    yield Call("MultiVectors", lambda _, **given: plait.MultiVectors(**given), {"values": rows, "offsets": offsets})
    yield Call("MultiVectors.from_items", lambda _, items: plait.MultiVectors.from_items(items), {"items": [rows]})
    sparse = {"terms": np.array([1, 2], np.int32), "weights": np.ones(2, np.float32), "offsets": offsets}
    yield Call("SparseVectors", lambda _, **given: plait.SparseVectors(**given), sparse)
    yield Call(
        "SparseVectors.from_items", lambda _, items: plait.SparseVectors.from_items(items), {"items": [{1: 1.0}]}
    )
    yield Call(
        "maxsim",
        lambda _, **given: plait.maxsim(**given),
        {"query": rows, "documents": plait.MultiVectors(rows, offsets)},
    )
    yield Call(
        "Pooling", lambda _, **given: plait.Pooling(**given), {"fixed": None, "factor": 2, "method": "hierarchical"}
    )
    yield Call(
        "EmbeddingSpec", lambda _, **given: plait.EmbeddingSpec(**given), {"dense": 4, "sparse": None, "multi": None}
    )
    yield Call("Deadline", lambda _, seconds: plait.Deadline(seconds), {"seconds": 1.0})
    for name in plait.__all__:
        params = getattr(plait, name)
        if name.endswith("Params"):
            right = {field.name: getattr(params(), field.name) for field in dataclasses.fields(params)}
            yield Call(name, lambda _, made=params, **given: made(**given), right)


CASES = [pytest.param(call, parameter, id=f"{call.name}-{parameter}") for call in calls() for parameter in call.right]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wrong") / "index"
    with plait.open(path, create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "a", "text": "wool", "year": 2000}, {"id": "b", "text": "linen and wool", "year": 2001}])
    return path


@pytest.fixture(scope="module")
def index(template: Path) -> Iterator[plait.Index]:
    with plait.open(template, encoder=WordEncoder()) as index:
        yield index


@pytest.mark.parametrize(("call", "parameter"), CASES)
def test_a_wrong_argument_works_or_is_an_error_of_plait(
    index: plait.Index, call: Call, parameter: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # a path may be made of the value
    foreign = {}
    for name, make in WRONG.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", plait.UnknownFieldWarning)
                call.run(index, **{**call.right, parameter: make()})
        except PlaitError as error:
            if not 10 < len(str(error)) < 1000:
                foreign[name] = f"a message of {len(str(error))} characters: {str(error)[:200]}"
        except Exception as error:
            foreign[name] = f"{error!r:.200}"
    assert not foreign


def test_the_index_is_whole_after_all_of_it(index: plait.Index) -> None:
    assert {hit.id for hit in index.search("wool", k=10, candidates=["a", "b"])} == {"a", "b"}
