"""Measures agree with pytrec_eval (which is trec_eval) and with ranx, on random runs and on a real one: a hybrid search
of ADI, a small public test collection, of which ids and judgements are kept here. make_ranx.py wrote what ranx says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import pytrec_eval

from evaluate.random_runs import as_trec, random_case
from plait.evaluate import measure, measure_each, read_qrels, read_run

FOLDER = Path(__file__).parent / "agreement"
CASES = ["0", "1", "2", "3", "4", "adi"]
TREC_EVAL = {
    "nDCG@10": "ndcg_cut_10",
    "nDCG": "ndcg",
    "R@20": "recall_20",
    "Success@5": "success_5",
    "AP": "map",
    "P@5": "P_5",
    "RR": "recip_rank",
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, dict[str, dict[str, int]]]:
    if request.param == "adi":
        return "adi", FOLDER / "adi-hybrid.trec", read_qrels(FOLDER / "adi.qrels")
    qrels, run = random_case(int(request.param))
    (tmp_path / "run").write_text(as_trec(run))
    return request.param, tmp_path / "run", qrels


def test_each_query_is_as_trec_eval_has_it(case: tuple[str, Path, dict[str, dict[str, int]]]) -> None:
    _, file, qrels = case
    with file.open() as lines:
        theirs = pytrec_eval.RelevanceEvaluator(qrels, set(TREC_EVAL.values())).evaluate(pytrec_eval.parse_run(lines))
    ours = measure_each(read_run(file), qrels, list(TREC_EVAL))
    for name, trec_name in TREC_EVAL.items():
        expected = {query: theirs.get(query, {}).get(trec_name, 0.0) for query in qrels}  # as trec_eval -c
        assert ours[name] == pytest.approx(expected, abs=1e-6)


def test_means_are_as_ranx_has_them(case: tuple[str, Path, dict[str, dict[str, int]]]) -> None:
    name, file, qrels = case
    expected = json.loads((FOLDER / "ranx.json").read_text())[name]
    assert measure(read_run(file), qrels, list(expected)) == pytest.approx(expected, abs=1e-6)
