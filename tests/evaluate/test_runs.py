"""TREC runs: every tool reads a written run in the same order."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import InputError
from plait.evaluate import ordered, read_run, without_self, write_run
from plait.evaluate.runs import n_self_first


def test_a_run_is_written_in_trec_format(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {"q1": [("b", 0.5), ("a", 2.0)], "q2": []})
    assert (tmp_path / "run").read_text() == "q1 Q0 a 1 2 plait\nq1 Q0 b 2 0.5 plait\n"
    assert read_run(tmp_path / "run") == {"q1": [("a", 2.0), ("b", 0.5)]}


def test_ties_are_broken_by_id() -> None:
    assert ordered([("b", 1.0), ("c", 2.0), ("a", 1.0)]) == [("c", 2.0), ("a", 1.0), ("b", 1.0)]


@given(st.lists(st.sampled_from([0.0, 1.0, 1.0 + 1e-12, -3.5, 1e-30, 1 / 61, 7e9]), max_size=12))
def test_written_scores_decrease_strictly_in_32_bits(
    tmp_path_factory: pytest.TempPathFactory, scores: list[float]
) -> None:
    path = tmp_path_factory.mktemp("runs") / "run"
    ranking = [(f"d{number}", score) for number, score in enumerate(scores)]
    write_run(path, {"q": ranking})
    read = read_run(path).get("q", [])
    assert [id for id, _ in read] == [id for id, _ in ordered(ranking)]
    read_scores = [np.float32(score) for _, score in read]
    assert all(read_scores[i] > read_scores[i + 1] for i in range(len(read_scores) - 1))
    np.testing.assert_allclose(read_scores, [score for _, score in ordered(ranking)], rtol=1e-5, atol=1e-40)


def test_documents_with_the_id_of_their_query_can_be_dropped() -> None:
    run = {"a": [("a", 2.0), ("b", 1.0), ("c", 0.5)], "b": [("a", 1.0)]}
    assert without_self(run) == {"a": [("b", 1.0), ("c", 0.5)], "b": [("a", 1.0)]}
    assert without_self(run, 1) == {"a": [("b", 1.0)], "b": [("a", 1.0)]}


@pytest.mark.parametrize(("id", "score"), [("a b", 1.0), ("", 1.0), ("a\n", 1.0), ("a", math.nan), ("a", math.inf)])
def test_bad_ids_and_scores_are_not_written(tmp_path: Path, id: str, score: float) -> None:
    with pytest.raises(InputError):
        write_run(tmp_path / "run", {"q": [(id, score)]})


@pytest.mark.parametrize("line", ["q Q0 d 1 0.5", "q Q0 d one 0.5 tag", "q Q0 d 1 high tag", "q 0 d 1"])
def test_an_error_names_the_bad_line_of_a_run(tmp_path: Path, line: str) -> None:
    (tmp_path / "run").write_text(f"q Q0 d 1 0.5 tag\n\n{line}\n")
    with pytest.raises(InputError, match="line 3"):
        read_run(tmp_path / "run")


def test_ties_of_a_file_are_broken_as_in_trec_eval(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q Q0 a 1 0.5 t\nq Q0 c 2 0.5 t\nq Q0 b 3 0.5000000001 t\nq Q0 d 4 0.75 t\n")
    read = read_run(tmp_path / "run")["q"]
    assert [id for id, _ in read] == ["d", "c", "b", "a"]  # by score in 32 bits, then by descending id; not by rank
    assert [id for id, _ in ordered(read)] == ["d", "c", "b", "a"]


def test_an_ms_marco_run_is_ordered_by_rank(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("1\t90\t2\n1\t70\t1\n")
    assert [id for id, _ in read_run(tmp_path / "run")["1"]] == ["70", "90"]


@pytest.mark.parametrize("score", ["nan", "inf", "-inf", "1e39"])
def test_a_score_that_is_not_finite_in_32_bits_is_refused(tmp_path: Path, score: str) -> None:
    (tmp_path / "run").write_text(f"q Q0 a 1 1 t\nq Q0 b 2 {score} t\n")
    with pytest.raises(InputError, match=f"run, line 2: the score of document 'b' for query 'q' is {score}"):
        read_run(tmp_path / "run")


def test_a_repeated_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q Q0 a 1 2 t\np Q0 a 1 2 t\nq Q0 a 2 1 t\n")
    with pytest.raises(InputError, match="run, line 3: document 'a' occurs a second time for query 'q'"):
        read_run(tmp_path / "run")


def test_queries_that_retrieve_themselves_differ_from_ids_that_coincide() -> None:
    numbers = {str(query): [(str(number), 1.0 / (number + 1)) for number in range(30)] for query in range(20)}
    assert n_self_first(numbers) == 0  # all documents are retrieved, one of them first
    assert n_self_first({"a": [("b", 1.0), ("a", 2.0)], "b": [("a", 1.0)], "c": []}) == 1


def test_ranks_that_contradict_the_scores_are_noted(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q Q0 a 1 0.1 t\nq Q0 b 2 0.2 t\np Q0 a 1 2 t\np Q0 b 1 3 t\n")
    notes: list[str] = []
    assert [id for id, _ in read_run(tmp_path / "run", notes=notes)["q"]] == ["b", "a"]
    assert notes == ["for 1 of 2 queries the ranks contradict the scores; scores count, as in trec_eval"]
