"""Measures and comparisons agree with pytrec_eval (trec_eval) and with ranx, on random runs and on a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytrec_eval

from evaluate.random_runs import CASES, as_trec, case
from plait.evaluate import CompareConfig, compare, measure_each, read_run

TREC_EVAL = {
    "nDCG@10": "ndcg_cut_10",
    "nDCG": "ndcg",
    "R@20": "recall_20",
    "Success@5": "success_5",
    "AP": "map",
    "P@5": "P_5",
    "RR": "recip_rank",
}
QUICK = CompareConfig(n_permutations=100, n_resamples=100)


@pytest.fixture(scope="module")
def ranx() -> dict[str, Any]:
    """The results of ranx for all cases."""
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "evaluate.ranx_results"],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    results: dict[str, Any] = json.loads(answer.stdout)
    return results


@pytest.mark.parametrize("name", CASES)
def test_values_of_each_query_equal_those_of_trec_eval(name: str, tmp_path: Path) -> None:
    qrels, run, _ = case(name)
    file = tmp_path / "run.trec"
    file.write_text(as_trec(run))
    with file.open() as lines:
        theirs = pytrec_eval.RelevanceEvaluator(qrels, set(TREC_EVAL.values())).evaluate(pytrec_eval.parse_run(lines))
    ours = measure_each(read_run(file), qrels, list(TREC_EVAL))
    for name_here, trec_name in TREC_EVAL.items():
        expected = {query: theirs.get(query, {}).get(trec_name, 0.0) for query in qrels}  # as trec_eval -c
        assert ours[name_here] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_comparisons_equal_those_of_ranx(name: str, tmp_path: Path, ranx: dict[str, Any]) -> None:
    qrels, *both = case(name)
    runs = {}
    for run_name, run in zip(("one", "other"), both, strict=True):
        (tmp_path / run_name).write_text(as_trec(run))
        runs[run_name] = read_run(tmp_path / run_name)
    comparison = compare(runs, qrels, list(ranx[name]), baseline="one", config=QUICK)
    p = {difference.measure: difference.p_t for difference in comparison.differences}
    for measure, theirs in ranx[name].items():
        ours = {run: comparison.means[measure][run].value for run in runs} | {"p": p[measure]}
        assert ours == pytest.approx(theirs, abs=1e-6)
