"""Arms that train: states of the frozen encoder, towers, and claims from texts to verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from plait.embeddings import MultiVectors
from plait.errors import ConfigError
from plait.scoring.maxsim import maxsim
from plait_reproduce import runner
from plait_reproduce.arms import dense
from plait_reproduce.arms import trained as arms
from plait_reproduce.arms.trained import nearest, owners_of
from plait_reproduce.claims import experiments
from plait_reproduce.claims.reading import Trainings, difference_of_independent
from plait_reproduce.datasets import Cut
from plait_reproduce.encoded_set import EncodedSet, Ranked
from plait_reproduce.experiment import Outcome
from plait_reproduce.frozen_encoder import FrozenEncoder, States
from plait_reproduce.runner import run_all, run_experiment
from plait_reproduce.training import linear_head, recipes
from plait_reproduce.training.questions import Questions, batches
from plait_reproduce.training.recipes import OBJECTIVES, Recipe
from plait_reproduce.training.towers import Tower, padded
from plait_reproduce.verdict import VERDICTS, Estimate
from plait_reproduce.workbench import Workbench
from small_sets import sets, write_set

HIDDEN = 16


def made_states(lengths: list[int], seed: int = 0) -> States:
    random = np.random.default_rng(seed)
    n_rows = sum(lengths)
    return States(
        random.standard_normal((n_rows, HIDDEN)).astype(np.float16),
        random.integers(5, 50, n_rows).astype(np.int32),
        np.ones(n_rows, np.bool_),
        np.ones(n_rows, np.bool_),
        np.concatenate([[0], np.cumsum(lengths)]),
    )


def made_questions(n: int = 24) -> Questions:
    """Each question is the beginning of its passage, with noise that leaves something to learn."""
    documents = made_states([6] * n)
    rows = np.concatenate([np.arange(6 * item, 6 * item + 3) for item in range(n)])
    noise = 2 * np.random.default_rng(1).standard_normal((len(rows), HIDDEN))
    asked = (documents.values[rows] + noise).astype(np.float16)
    queries = States(asked, documents.ids[rows], documents.kept[rows], documents.seen[rows], np.arange(n + 1) * 3)
    others = np.stack([[(item + step) % n for step in range(1, 11)] for item in range(n)])
    return Questions(queries, documents, np.arange(n), others)


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """One for all tests: what one of them encodes, the next finds."""
    data = tmp_path_factory.mktemp("data")
    for name in (*arms.SETS, dense.LONG):
        write_set(data / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "STEPS", {"quick": 2, "full": 3})
        patch.setattr(recipes, "PASSAGES", 8)
        patch.setattr(recipes, "RATES", (1e-3,))
        patch.setattr(dense, "STEPS", {"quick": (2, 2)})
        patch.setattr(linear_head, "STEPS", {"quick": 2})
        cuts = sets(*arms.SETS) | {dense.LONG: Cut(folder=dense.LONG, documents=(20, 24), queries=(8, 12), joined=4)}
        yield Workbench(data, data / "work", sets=cuts, n_threads=1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors gain nothing from more, and threads that wait for each other cost much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_states_after_the_last_layer_give_the_dense_vector(workbench: Workbench) -> None:
    text = "rain and snow"
    states = FrozenEncoder(workbench, layer=-1, length=64).queries("made", [text])
    mean = states.values.astype(np.float32).mean(axis=0)
    dense = workbench.encoder(length=64).encode_queries([text]).dense
    assert dense is not None
    np.testing.assert_allclose(mean / np.linalg.norm(mean), dense[0], atol=2e-3)


def test_a_missing_layer_is_refused(workbench: Workbench) -> None:
    with pytest.raises(ConfigError, match=r"12 layers, so it cannot be cut after layer 99"):
        FrozenEncoder(workbench, layer=99, length=64).queries("made", ["rain"])


def test_mcls_is_the_mean_over_all_first_tokens(workbench: Workbench) -> None:
    """The dense vector that a model of first tokens would have, with [CLS] put in at every two tokens."""
    text = "rain snow wind fog"
    found = FrozenEncoder(workbench, layer=-1, length=64, mcls=2).pooled("made", [text], is_query=False)
    states = FrozenEncoder(workbench, layer=-1, length=64, mcls=2).documents("made", [("", text)])
    firsts_ = states.ids == states.ids[0]
    assert np.flatnonzero(firsts_).tolist() == [0, 3]
    np.testing.assert_allclose(found.first[0], states.values[firsts_].astype(np.float32).mean(axis=0), atol=2e-3)


def test_filled_queries_keep_their_tokens(workbench: Workbench) -> None:
    text = "rain and snow"
    plain = FrozenEncoder(workbench, layer=6, length=64).queries("made", [text])
    filled = FrozenEncoder(workbench, layer=6, length=64, masks=12).queries("made", [text])
    n = len(plain.ids)
    assert (len(filled.ids), filled.seen.sum()) == (12, n)
    np.testing.assert_allclose(filled.values[:n].astype(np.float32), plain.values.astype(np.float32), atol=2e-2)


def test_rows_of_a_tower_ignore_masked_tokens() -> None:
    own = made_states([5])
    hidden = States(own.values, own.ids, own.kept, np.arange(5) < 3, own.offsets)
    tower = Tower(HIDDEN).eval()
    torch.nn.init.normal_(tower.attend.out_proj.weight)
    rows, alone = tower.rows(hidden, is_query=True), tower.rows(own.some([0]), is_query=True)
    short = States(own.values[:3], own.ids[:3], own.kept[:3], own.seen[:3], np.array([0, 3]))
    np.testing.assert_allclose(rows[0][:3], tower.rows(short, is_query=True)[0], atol=1e-5)
    assert not np.allclose(rows[0][:3], alone[0][:3], atol=1e-3)


def test_the_learning_rate_is_chosen_by_the_scoring_of_the_recipe(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(encoded: EncodedSet) -> list[Ranked]:
        asked.append(encoded.name)
        return arms.by_retrieved(encoded)

    monkeypatch.setattr(arms, "exact", noted)
    for objective, n_asked in (("xtr", 0), ("maxsim", 1)):
        arms.dev_quality(workbench, Recipe(objective=objective, temperature=0.07), 1e-3)
        assert len(asked) == n_asked


def test_imputed_scores_of_all_rows_are_the_mean_maxsim() -> None:
    random = np.random.default_rng(0)
    rows = MultiVectors.from_items([random.standard_normal((n, 8)).astype(np.float32) for n in (3, 5, 1, 4)])
    query = random.standard_normal((3, 8)).astype(np.float32)
    found = nearest(query, np.asarray(rows.values), owners_of(rows), len(rows.values))
    items, scores = found.ranked(len(rows.values), "last", 4)
    np.testing.assert_allclose(scores, maxsim(query, rows)[items] / 3, rtol=1e-5)


def test_without_imputation_a_score_is_the_mean_of_the_retrieved_similarities() -> None:
    rows = MultiVectors.from_items([np.eye(2, dtype=np.float32)[:1], np.eye(2, dtype=np.float32)[1:]])
    query = np.array([[1, 0.2], [0.9, 0.1]], np.float32)
    found = nearest(query, np.asarray(rows.values), owners_of(rows), 2)
    items, scores = found.ranked(1, "none", 2)
    assert items.tolist() == [0]
    np.testing.assert_allclose(scores, [0.95])


def test_padding_changes_no_row_of_a_tower() -> None:
    states = made_states([3, 9])
    tower = Tower(HIDDEN).eval()
    together, alone = tower.encode(states, [0, 1], is_query=False), tower.encode(states, [0], is_query=False)
    assert together.multi is not None
    assert alone.multi is not None
    torch.testing.assert_close(together.multi[0, :3], alone.multi[0])


def test_a_tower_with_a_mixer_gives_every_document_the_same_number_of_rows() -> None:
    rows = Tower(HIDDEN, fixed=4).eval().rows(made_states([3, 9, 20]), is_query=False)
    assert np.diff(rows.offsets).tolist() == [4, 4, 4]


def test_no_two_questions_of_a_batch_have_the_same_answer() -> None:
    own = made_questions(12)
    shared = Questions(own.queries, own.documents, own.positive // 2, own.negatives)
    for chosen in batches(shared, 6, 5, seed=0):
        assert len(set(shared.positive[chosen].tolist())) == len(chosen) == 6


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "lists"])
def test_training_lowers_every_loss(objective: str) -> None:
    own, recipe = made_questions(), Recipe(objective=objective, k=8)
    torch.manual_seed(0)
    losses = recipes.train(recipes.made(recipe, own), recipe, own, n_steps=25, seed=0, lr=5e-3)
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_an_unknown_objective_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="maxsim, xtr, unmasked"):
        Recipe(objective="magic")


def test_padded_states_keep_their_tokens() -> None:
    states = made_states([2, 4])
    values, tokens = padded(states, [1, 0])
    assert tokens.mask.sum(dim=1).tolist() == [4, 2]
    np.testing.assert_array_equal(tokens.ids[1, :2], states.ids[:2])
    np.testing.assert_array_equal(values[1, :2], states.values[:2].astype(np.float32))


def test_a_trained_tower_is_saved(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = recipes.trained(workbench, Recipe(), seed=0, lr=1e-3)
    monkeypatch.setattr(recipes, "train", None)  # would fail if it were called
    again = recipes.trained(workbench, Recipe(), seed=0, lr=1e-3)
    torch.testing.assert_close(first.enter.weight, again.enter.weight)


@pytest.mark.parametrize("claim", ["X2", "X3", "K6", "M5", "C1", "C8", "M6", "M7"])
def test_training_claims_run_from_texts_to_a_verdict(claim: str, workbench: Workbench) -> None:
    result = run_experiment(experiments()[claim], workbench, say=lambda _line: None)
    assert result["verdict"] in VERDICTS
    assert all(np.isfinite(check["value"]) for check in result["checks"])


def test_dev_queries_are_not_measured(workbench: Workbench) -> None:
    outcome = arms.tokens(workbench, {"recipe": {}, "seed": 0})
    texts = workbench.texts(arms.TEST)
    dev = {list(texts.queries)[place] for place in arms.part_places(texts, "dev")}
    assert set(outcome.each["full/nDCG@10"]) == texts.queries.keys() - dev


def test_a_claim_with_missing_packages_is_skipped_with_the_reason(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "find_spec", lambda name: None if name == "torch" else name)
    said: list[str] = []
    assert run_all([experiments()["X2"]], workbench, to=tmp_path / "report", say=said.append) == []
    assert said == ["X2: not run: it needs torch; install with: pip install 'plait[train]'"]
    with pytest.raises(ConfigError, match="X2 cannot be run"):
        run_experiment(experiments()["X2"], workbench)


def test_differences_on_different_queries_combine_both_intervals() -> None:
    gap = difference_of_independent(Estimate(0.5, 0.2, 0.9, 10), Estimate(0.1, 0.0, 0.5, 20))
    np.testing.assert_allclose([gap.value, gap.low, gap.high], [0.4, 0.4 - 0.5, 0.4 + 0.4123], atol=1e-4)
    assert gap.n == 10


def test_trainings_pair_seeds_and_queries() -> None:
    outcomes = {f"{arm}/{seed}": Outcome({"m": {"a": value + seed, "b": value}}) for seed in range(3)
                for arm, value in (("new", 0.5), ("old", 0.25))}  # fmt: skip
    gap = Trainings(outcomes).less(("new", "m"), ("old", "m"))
    assert (gap.value, gap.low, gap.high) == (0.25, 0.25, 0.25)
