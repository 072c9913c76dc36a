"""Real experiments on generated sets: from texts to the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plait_reproduce.arms import kinds, multivector, xtr_scoring
from plait_reproduce.claims import select
from plait_reproduce.report import write_report
from plait_reproduce.runner import run_all
from plait_reproduce.workbench import Workbench
from small_sets import sets, write_set

NAMES = ("scifact", "climate", "clapnq")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduce")
    for seed, name in enumerate(NAMES):
        write_set(folder / "data" / name, seed=seed)
    return folder


@pytest.fixture(scope="module")
def workbench(folder: Path) -> Workbench:
    return Workbench(folder / "data", folder / "work", n_threads=1, sets=sets(*NAMES))


def test_claims_run_from_texts_to_the_report(folder: Path, workbench: Workbench) -> None:
    results = run_all(select(["C4", "W2", "M1"]), workbench, to=folder / "report", say=lambda _line: None)
    assert [result["id"] for result in results] == ["C4", "W2", "M1"]
    overview = write_report(folder / "report").read_text()
    assert all(f"[{result['id']}](" in overview for result in results)


def test_vectors_are_encoded_once(folder: Path, workbench: Workbench) -> None:
    workbench.encoded("clapnq")
    said: list[str] = []
    again = Workbench(folder / "data", folder / "work", n_threads=1, sets=sets(*NAMES), say=said.append)
    found = again.encoded("clapnq")
    assert said == []
    np.testing.assert_array_equal(found.document_rows.values, workbench.encoded("clapnq").document_rows.values)


def test_retrieving_every_token_ranks_like_maxsim(workbench: Workbench) -> None:
    settings = {"set": "clapnq", "n_tokens": [10, 100_000], "fillings": ["last"]}
    outcome = xtr_scoring.by_tokens(workbench, settings)
    assert set(outcome.each["100000/overlap@10"].values()) == {1.0}
    assert outcome.facts["10/items"] <= outcome.facts["100000/items"] == 20


def test_more_bits_have_a_smaller_error(workbench: Workbench) -> None:
    errors = [
        multivector.by_paper_codec(workbench, {"set": "clapnq", "bits": bits}).facts["error"] for bits in (4, 2, 1, 0)
    ]
    assert errors == sorted(errors)


def test_a_kind_with_weight_zero_changes_nothing(workbench: Workbench) -> None:
    weights = {"alone": {"dense": 1.0, "lexical": 0.0}}
    outcome = kinds.modes(workbench, {"set": "clapnq", "weights": weights})
    assert outcome.each["alone/nDCG@10"] == outcome.each["dense/nDCG@10"]
