"""Projections that are fitted to a collection, and the table of their quality."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import projection_index
from benchmarks.quality.projection import (
    DIMS,
    GROWN,
    WHOLE,
    check_sets,
    doubled,
    draw,
    fit,
    half_of,
    main,
    rows_of_set,
    shuffled,
    table,
    unit,
)
from benchmarks.quality.token_states import GraphStates, read_states
from encoders import WordEncoder
from plait.embeddings import MultiVectors
from plait.errors import ModelError
from plait.evaluate import load_beir

DIM = 200
THINGS = ("loom", "river", "engine", "violin", "orchard", "harbour")


class WordStates:
    """A random state for each word, far from the origin and with little noise; counts what it encodes."""

    fingerprint = "words"

    def __init__(self) -> None:
        self.n_encoded = 0

    def queries(self, texts: Sequence[str]) -> MultiVectors:
        self.n_encoded += len(texts)
        return MultiVectors.from_items([np.stack([self._state(word) for word in text.split()]) for text in texts])

    documents = queries

    def _state(self, word: str) -> np.ndarray:
        seed = int.from_bytes(word.encode().ljust(8, b"\0")[:8], "little")
        return np.random.default_rng(seed).normal(2.0, 1.0, DIM).astype(np.float32)


def beir(folder: Path, things: Sequence[str] = THINGS) -> Path:
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{n}", "title": thing, "text": f"is number {n} here"} for n, thing in enumerate(things)]
    queries = [{"_id": f"q{n}", "text": f"which {thing}"} for n, thing in enumerate(things)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)) + "\n")
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)) + "\n")
    rows = ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t1" for n in range(len(things)))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    return folder


def sample(n: int = 4000) -> np.ndarray:
    """Tokens with a mean of 5, and standard deviations 3, 2, 1 along the axes."""
    return (np.random.default_rng(0).normal(size=(n, 3)) * [3, 2, 1] + 5).astype(np.float32)


def test_directions_are_those_of_most_variance_about_the_mean() -> None:
    projection = fit(sample(), 2)
    np.testing.assert_allclose(projection.mean, [5, 5, 5], atol=0.2)
    np.testing.assert_allclose(np.abs(projection.directions), [[1, 0], [0, 1], [0, 0]], atol=0.1)
    np.testing.assert_allclose(np.linalg.norm(projection.apply(sample()), axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(("whitening", "ratio"), [(0.0, 3.0), (0.5, 3**0.5), (1.0, 1.0)])
def test_whitening_makes_variances_more_equal(whitening: float, ratio: float) -> None:
    projection = fit(sample(), 3, whitening=whitening)
    spread = ((sample() - projection.mean) @ projection.directions).std(axis=0)
    assert spread[0] / spread[2] == pytest.approx(ratio, rel=0.05)


def test_directions_without_variance_are_dropped() -> None:
    flat = sample() * np.array([1, 1, 0], np.float32)
    assert fit(flat, 3, whitening=1.0).directions.shape == (3, 2)


def test_centring_alone_keeps_the_space() -> None:
    projection = fit(sample(), None)
    rows = sample(5)
    np.testing.assert_allclose(projection.apply(rows), unit(rows - projection.mean), atol=1e-6)


@pytest.mark.parametrize(("n", "whitening"), [(1, 0.0), (9, 1.5)])
def test_a_fit_that_cannot_be_made_is_refused(n: int, whitening: float) -> None:
    with pytest.raises(ValueError, match=r"fitted to 2 tokens|from 0 to 1"):
        fit(sample(n), 2, whitening=whitening)


def test_samples_are_drawn_once_each_and_a_row_of_zeros_stays() -> None:
    rows = np.arange(300, dtype=np.float32).reshape(100, 3)
    assert len(np.unique(draw(rows, 10, seed=1)[:, 0])) == 10
    assert len(draw(rows, 1000, seed=1)) == 100
    assert not unit(np.zeros((1, 3), np.float32)).any()


def test_states_are_encoded_once_and_kept_as_float16(tmp_path: Path) -> None:
    judged, model = load_beir(beir(tmp_path / "set"), "test"), WordStates()
    first = read_states(judged, model, tmp_path / "cache")
    n_encoded = model.n_encoded
    again = read_states(judged, model, tmp_path / "cache")
    assert model.n_encoded == n_encoded == 2 * len(THINGS)
    np.testing.assert_array_equal(first.documents.values, again.documents.values)
    assert np.load(next((tmp_path / "cache").glob("*.values.npy"))).dtype == np.float16


def test_every_setting_is_judged_and_a_doubled_set_is_compared_with_itself(tmp_path: Path) -> None:
    model, judged = WordStates(), load_beir(beir(tmp_path / "set"), "test")
    states = read_states(judged, model, tmp_path / "cache")
    other_set = load_beir(beir(tmp_path / "other", ("falcon", "bakery", "glacier")), "test")
    other = shuffled([read_states(other_set, model, tmp_path / "cache").documents], seed=0)
    scores_by_setting = rows_of_set(states, judged, other, None, 1)
    assert np.mean(list(scores_by_setting[WHOLE].values())) == pytest.approx(1.0)
    assert {f"own directions, {dim}" for dim in DIMS} <= scores_by_setting.keys()
    assert GROWN in scores_by_setting
    lines = table({"set": scores_by_setting}).splitlines()
    assert lines[2] == f"| {WHOLE} | 1.0000 |"
    assert len(lines) == 2 + len(scores_by_setting)
    grown = doubled(states, other)
    assert len(grown.documents) == len(grown.document_ids) == len(THINGS) + 3
    np.testing.assert_array_equal(grown.documents[len(THINGS)], other[0])


def test_the_half_has_whole_passages() -> None:
    items = MultiVectors.from_items([np.full((2, 3), number, np.float32) for number in range(10)])
    rows = half_of(items, seed=0)
    assert len(rows) == 10
    assert set(np.unique(rows[:, 0], return_counts=True)[1].tolist()) == {2}


def test_a_clear_difference_is_marked_after_correction_and_a_small_one_is_not() -> None:
    queries = [f"q{number}" for number in range(40)]
    whole = dict.fromkeys(queries, 0.5)
    scores_by_setting = {WHOLE: whole, "worse": dict.fromkeys(queries, 0.3), "equal": whole}
    assert table({"set": scores_by_setting}).splitlines()[3:] == ["| worse | 0.3000 * |", "| equal | 0.5000 |"]


def test_a_set_has_one_role(tmp_path: Path) -> None:
    check_sets([tmp_path / "a"], [tmp_path / "b"], [tmp_path / "c"])
    with pytest.raises(ValueError, match=r"is in --develop and in --report"):
        check_sets([tmp_path / "a"], [tmp_path / "b" / ".." / "a"], [])


def test_a_folder_without_a_graph_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"lacks tokenizer\.json"):
        GraphStates(tmp_path)


def test_the_ladder_is_measured_through_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(projection_index, "load_model", lambda *_, **__: WordEncoder(dim=32))
    things = [f"{colour}{thing}" for colour in ("red", "old", "new") for thing in THINGS]
    beir(tmp_path / "small", things)
    sets = ["--data", str(tmp_path), "--sets", "small", "--models", "words", "--dims", "16", "64"]
    monkeypatch.setattr("sys.argv", ["projection", "--through-index", *sets, "--work", str(tmp_path / "work")])
    main()
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("|")]
    assert rows.count("fitted, 16") == 3  # multi, hybrid, costs; 64 dimensions are more than there are
    assert not any("fitted, 64" in row for row in rows)
    assert rows.count("whole vectors") == 3
    (whole,) = [line for line in lines if line.startswith("| whole vectors") and "1.0000" in line][:1]
    assert whole
    assert [path.name for path in (tmp_path / "work").glob("*/*")] == ["small"]
