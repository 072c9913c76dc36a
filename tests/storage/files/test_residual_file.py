"""Damaged residual.plait files are refused by name: at opening, at first use, or by `check`."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plait.embeddings import Embeddings, MultiVectors
from plait.errors import CorruptIndexError
from plait.search.modes import PlanContext, resolve
from plait.search.multivector.passages import ExactMulti
from plait.search.query import QueryBatch
from plait.search.trace import Trace
from plait.storage import verification
from plait.storage.check import check
from plait.storage.store import Store
from search.plans import DefaultProbe
from storage.grouped_tokens import group_vectors, make_tokens
from storage.resealed import Change, cut, drop, index_of, put, rewrite, say
from storage.test_damage import flip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = make_tokens(tmp_path_factory.mktemp("coded") / "index")
    with store.writer() as writer:
        writer.compact(keep_8bit=True)
    return store.path


@pytest.fixture
def file(made: Path, tmp_path: Path) -> Path:
    """The residual.plait of a copy of the index, as a new process would see it."""
    verification.forget()
    shutil.copytree(made, tmp_path / "index")
    return tmp_path / "index" / "segments" / "000004" / "residual.plait"


def search_everything(index: Path) -> None:
    """Scores every passage, and probes as well."""
    batch = QueryBatch(["q"], Embeddings(multi=MultiVectors.from_items([group_vectors(3)])))
    with Store.open(index).snapshot() as snapshot:
        for generator in (ExactMulti(), DefaultProbe()):
            assert len(generator.retrieve(snapshot, batch, 10, None, Trace())[0]) == 10


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "truncated"),
        (lambda file: file.write_bytes(b""), "has 0 bytes"),
        (lambda file: flip(file, 0), "is not a plait segment file"),
        (lambda file: flip(file, 60), "does not match its checksum"),
        (lambda file: flip(file, -9), "is damaged"),
        (lambda file: flip(file, 4000), "is damaged"),
        (lambda file: file.unlink(), "is missing"),
    ],
    ids=["cut", "emptied", "magic", "header", "end", "middle", "removed"],
)
def test_a_damaged_file_is_refused_by_name(file: Path, harm: Callable[[Path], None], message: str) -> None:
    harm(file)
    with (
        pytest.raises(CorruptIndexError, match=rf"residual\.plait.* {message}"),
        Store.open(index_of(file)).snapshot() as snapshot,
    ):
        _ = snapshot.segments[0].coded
    assert [problem for problem in check(index_of(file)).problems if "residual.plait" in problem] != []


KINDS = ("codes", "row_lengths", "row_factors", "steps", "lengths", "factors")  # arrays that 8-bit codes have too
NAMES = (
    *("centroids", "offsets", "centroid_ids", "posting_rows", "posting_offsets"),
    *(f"{kind}{suffix}" for suffix in ("", "_8bit") for kind in KINDS),
)


def test_a_file_that_is_rewritten_unchanged_is_valid(file: Path) -> None:
    rewrite(file, lambda *_: None)
    search_everything(index_of(file))
    assert check(index_of(file)).problems == []


@pytest.mark.parametrize("value", [None, True, "2", 0, 3, 1 << 80, 4, 2.0], ids=repr)
def test_bits_that_do_not_fit_the_codes_are_refused(file: Path, value: Any) -> None:
    refused_at_opening(file, say("bits", value))


@pytest.mark.parametrize("name", ["centroid_scale", "max_centroid_norm", "error"])
@pytest.mark.parametrize("value", [None, True, "1", -1, float("nan"), float("inf"), 1e300, 10**400], ids=repr)
def test_invalid_attributes_are_refused(file: Path, name: str, value: Any) -> None:
    refused_at_opening(file, say(name, value))


@pytest.mark.parametrize(
    "change",
    [
        *(drop(name) for name in NAMES),
        *(cut(name, 3) for name in NAMES if name != "posting_rows"),
        *(cut(name, 0) for name in NAMES if name != "posting_rows"),
        say("has_8bit", 2),
        lambda arrays, _: arrays.update(centroid_ids=arrays["centroid_ids"].astype(np.uint32)),
        lambda arrays, _: arrays.update(centroids=arrays["centroids"][:, :8].copy()),
        lambda arrays, _: arrays.update(codes=arrays["codes"][:, :1].copy()),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_refused(file: Path, change: Any) -> None:
    refused_at_opening(file, change)


def refused_at_opening(file: Path, change: Change) -> None:
    rewrite(file, change)
    with pytest.raises(CorruptIndexError, match=r"residual\.plait"):
        Store.open(index_of(file)).snapshot()
    assert not check(index_of(file)).ok


HUGE = np.iinfo(np.int64).max


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("centroids", (0, 0), 128), "a centroid has the value 128"),
        (put("steps", 0, np.nan), "steps"),
        (put("steps", 0, np.inf), "steps"),
        (put("steps", 0, 0), "above 0"),
        (put("steps_8bit", 0, -1), "above 0"),
        (put("factors", 9, np.nan), "factors"),
        (put("lengths", 9, np.inf), "lengths"),
        (put("lengths", 200, 0), "do not ascend"),
        (put("factors_8bit", 1, -5), "do not ascend"),
        (put("offsets", 0, 1), "offsets must ascend"),
        (put("offsets", 5, -HUGE), "offsets must ascend"),
        (put("offsets", -1, HUGE), "offsets must ascend"),
        (put("posting_offsets", 3, HUGE), "posting_offsets must ascend"),
        (cut("posting_rows", 3), "posting_offsets must ascend"),
    ],
)
def test_invalid_values_are_refused_at_first_use(file: Path, change: Any, message: str) -> None:
    rewrite(file, change)
    with Store.open(index_of(file)).snapshot() as snapshot, pytest.raises(CorruptIndexError, match=message):
        _ = snapshot.segments[0].coded
    assert [problem for problem in check(index_of(file)).problems if "residual.plait" in problem] != []


@pytest.mark.parametrize("change", [put("centroid_ids", slice(None), 9999), put("posting_rows", slice(None), 1 << 31)])
def test_an_id_or_a_posting_out_of_range_is_damage(file: Path, change: Any) -> None:
    rewrite(file, change)
    with pytest.raises(CorruptIndexError, match="segment 4 are damaged"):
        search_everything(index_of(file))
    assert not check(index_of(file)).ok


def test_check_compares_postings_with_centroid_ids(file: Path) -> None:
    rewrite(file, put("posting_rows", 0, 7))
    assert "do not match the centroid ids" in check(index_of(file)).problems[0]


def test_a_segment_cannot_have_its_vectors_twice(file: Path) -> None:
    connection = sqlite3.connect(index_of(file) / "catalogue.sqlite")
    files = json.loads(connection.execute("SELECT files FROM segments").fetchone()[0])
    files["multi.plait"] = files["residual.plait"]
    connection.execute("UPDATE segments SET files = ?", [json.dumps(files)])
    connection.commit()
    connection.close()
    with pytest.raises(CorruptIndexError, match="segment 4 twice"):
        Store.open(index_of(file)).snapshot()
    assert any("twice" in problem for problem in check(index_of(file)).problems)


@pytest.mark.parametrize("mode", ["exhaustive", "plaid", "xtr", "colxtr", "warp"])
def test_every_method_reports_an_invalid_centroid_id_as_damage(file: Path, mode: str) -> None:
    rewrite(file, put("centroid_ids", slice(None), 60_000))
    batch = QueryBatch(["q"], Embeddings(multi=MultiVectors.from_items([group_vectors(3)])))
    with (
        Store.open(index_of(file)).snapshot() as snapshot,
        pytest.raises(CorruptIndexError, match="compressed vectors of segment 4 are damaged"),
    ):
        resolve(mode, None, PlanContext.of(snapshot, k=10)).run(snapshot, batch)
