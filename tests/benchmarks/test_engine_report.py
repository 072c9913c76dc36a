"""The report of the engine benchmark: fronts, latency at a recall, tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.engine.measure import Point, measured
from benchmarks.engine.report import (
    END,
    START,
    build_rows,
    fill,
    front,
    latency_at,
    latency_rows,
    markdown,
    measure_of,
    ratio_rows,
    text_tables,
)
from benchmarks.engine.truth import recall


def points(*pairs: tuple[float, float]) -> list[dict[str, Any]]:
    return [{"recall": recall, "p50": milliseconds, "queries": 2} for recall, milliseconds in pairs]


def test_the_front_leaves_out_dominated_points() -> None:
    assert front(points((0.9, 2.0), (0.8, 3.0), (0.7, 1.0), (0.9, 2.5))) == [(0.7, 1.0), (0.9, 2.0)]


def test_a_run_of_one_thread_on_a_busy_machine_is_judged_by_cpu_time() -> None:
    assert measure_of({"threads": 1, "load": [0.5, 9.0]}) == "processor"
    assert measure_of({"threads": 2, "load": [9.0]}) == measure_of({"threads": 1, "load": [1.2]}) == "p50"


def test_latency_between_two_points_is_interpolated_in_logarithms() -> None:
    assert latency_at([(0.8, 1.0), (0.9, 4.0)], 0.85) == pytest.approx(2.0)


def test_a_recall_below_all_points_has_the_time_of_the_fastest() -> None:
    assert latency_at([(0.8, 1.0), (0.9, 4.0)], 0.5) == 1.0


def test_a_recall_above_all_points_is_never_reached() -> None:
    assert latency_at([(0.8, 1.0)], 0.81) is None
    assert latency_at([], 0.5) is None


def test_recall_weighs_queries_equally_and_counts_a_missing_answer_as_wrong() -> None:
    found, true = np.array([[3, 1], [5, -1]]), np.array([[1, 3], [5, 6]])
    assert recall(found, true, 2) == 0.75


def test_percentiles_are_of_each_querys_median_over_rounds() -> None:
    point = Point({}, [[0.001, 0.002, 0.003], [0.001, 0.002, 0.003], [9.0, 9.0, 9.0]], [0.1] * 3)
    point.ids = np.zeros((3, 1), np.int64)
    assert measured(point, np.zeros((3, 100), np.int64), 1)["p50"] == pytest.approx(2.0)


def report() -> dict[str, Any]:
    def variant(name: str, engine: str, size: float, *pairs: tuple[float, float]) -> dict[str, Any]:
        shared: dict[str, Any] = {"build": {}, "opened": {}, "error": "" if pairs else "open: it broke"}
        return {
            "name": name,
            "engine": engine,
            "bytes_per_vector": size,
            "points": points(*pairs),
            "too_slow": [],
            **shared,
        }

    run = {
        "corpus": {"name": "tiny", "passages": 10, "vectors": 100},
        "threads": 1,
        "build_threads": 2,
        "rounds": 1,
        "k": 10,
        "load": [0.5],
        "steal": [0.0],
        "variants": [
            variant("plait 1-bit", "plait", 20, (0.8, 1.0)),
            variant("plait 4-bit", "plait", 70, (0.8, 2.0), (0.99, 4.0)),
            variant("other", "torch", 40, (0.99, 1.0)),
            variant("broken", "faiss", 40),
        ],
    }
    machine = {"cpus": 2, "system": "Linux", "plait": "0", "targets": ["scalar"], "python": "3"}
    return {"machine": machine, "runs": [run]}


def test_a_rival_is_compared_with_every_plait_index_and_with_those_no_larger() -> None:
    anything, no_larger = ratio_rows(report()["runs"][0])[1:]
    assert anything[2] == no_larger[2] == "1.0"
    assert anything[-1] == "0.2"
    assert no_larger[-1] == "only they"


def test_an_engine_that_does_not_reach_a_recall_is_printed_as_never() -> None:
    assert "never" in latency_rows(report()["runs"][0])[1]


def test_a_recall_that_only_an_unmeasured_setting_may_reach_is_unknown() -> None:
    run = report()["runs"][0]
    run["variants"][0]["too_slow"] = [{"settings": {}, "queries": 3, "p50": 9000.0}]
    assert "never" not in latency_rows(run)[1]
    assert "unknown" in latency_rows(run)[1]


def test_a_failed_variant_is_printed_with_its_error() -> None:
    assert "broken: open: it broke" in text_tables(report())


def test_an_index_that_its_engine_did_not_build_has_a_note_and_no_time() -> None:
    whole = report()
    took = {"seconds": 1.5, "processor_seconds": 1.25, "peak_bytes": 9e6, "disk_bytes": 4e6}
    for variant, note in zip(whole["runs"][0]["variants"][1:3], ({}, {"note": "made elsewhere"}), strict=True):
        variant |= {"build": took | note, "opened": {"resident_bytes": 5e6}}
    assert [row[1:5] for row in build_rows(whole["runs"][0])[1:]] == [["1.5", "1.2", "9", "4"], ["-", "-", "-", "4"]]
    assert "other: made elsewhere" in text_tables(whole)


def test_filling_a_page_keeps_the_text_around_its_results(tmp_path: Any) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    fill(report(), page, plots=None)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert markdown(ratio_rows(report()["runs"][0])) in text


def test_a_page_without_result_marks_is_refused(tmp_path: Any) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(SystemExit, match="no place for results"):
        fill(report(), page, plots=None)
