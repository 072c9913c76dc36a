"""The benchmark of plait.compat: its vectors have answers, and its report is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.compat import run
from benchmarks.compat.vectors import make_vectors


def test_the_source_of_a_query_is_its_best_document() -> None:
    documents, queries, sources = make_vectors(50, 5)
    assert [one[0] for one in run.exact(documents, queries)] == [str(number) for number in sources]


def test_the_report_compares_batch_by_batch() -> None:
    process = cast(Any, None)
    plait = run.Library("plait", process, 1.0, [0.001, 0.002], [["a"], ["b"]])
    pylate = run.Library("pylate", process, 2.0, [0.004, 0.004], [["a"], ["x"]])
    text = run.report(plait, pylate, [["a"], ["b"]])
    assert "3.0 times as fast (2.0 to 4.0 over 2 batches)" in text
    assert run.recall([["a"], ["b"]], pylate.ids) == 0.5


def test_a_worker_answers_batches_with_plait(tmp_path: Path) -> None:
    documents, queries, sources = make_vectors(30, 4)
    np.savez(tmp_path / "vectors.npz", documents=documents, queries=queries)
    arguments = [run.PLAIT, "PLAID", str(tmp_path / "vectors.npz"), str(tmp_path / "index"), "1"]
    done = subprocess.run(
        [sys.executable, str(run.WORKER), *arguments], input="[0, 4, 1]\n", capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[1]["ids"] == [[str(number)] for number in sources]
