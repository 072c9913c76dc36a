"""The runs of all modes on a judged set; a query that is a document of its corpus does not find itself."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

import plait
from benchmarks.quality.modes import K, add_drop_self, check_drop_self, found_by_plan
from encoders import WordEncoder
from plait.evaluate import Dataset

PLANS = ("bm25", "dense", "hybrid")
N_TEXTS = 2 * K


def judged() -> Dataset:
    queries = {f"d{number}": f"plaited vectors of text {number}" for number in range(N_TEXTS)}
    return Dataset("set", "set", "test", None, queries, {id: {"d0": 1} for id in queries})


def found(folder: Path, *, drop_self: bool) -> dict[str, dict[str, list[str]]]:
    asked = judged()
    with plait.open(folder, create=True, encoder=WordEncoder()) as index:
        index.add([{"id": id, "text": text} for id, text in asked.queries.items()])
        runs = found_by_plan(index, asked, PLANS, drop_self=drop_self)
    return {plan: {query: [id for id, _ in own] for query, own in run.items()} for plan, run in runs.items()}


def test_queries_that_are_documents_find_themselves_unless_they_are_dropped(tmp_path: Path) -> None:
    for plan, run in found(tmp_path / "kept", drop_self=False).items():
        assert all(len(ids) == K and ids[0] == query for query, ids in run.items()), plan


def test_dropping_the_query_still_gives_k_hits(tmp_path: Path) -> None:
    for plan, run in found(tmp_path / "dropped", drop_self=True).items():
        assert all(len(ids) == K and query not in ids for query, ids in run.items()), plan


def test_drop_self_refuses_a_set_that_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", nargs="+")
    add_drop_self(parser)
    check_drop_self(parser, parser.parse_args(["--sets", "birco-arguana", "cacm", "--drop-self", "birco-arguana"]))
    with pytest.raises(SystemExit):
        check_drop_self(parser, parser.parse_args(["--sets", "birco-arguana", "--drop-self", "arguana"]))
    assert "--drop-self names arguana" in capsys.readouterr().err
