"""The small cross-encoders: they learn, their matrix has the scores of their pairs, and claims are judged."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

from plait_reproduce.claims.trained_anncur import EXPERIMENTS
from plait_reproduce.experiment import Outcome
from plait_reproduce.frozen_encoder import States
from plait_reproduce.training.cross_encoder import PairTower, train
from plait_reproduce.training.questions import Questions

HIDDEN = 16


def made_states(n: int, length: int, seed: int) -> States:
    values = np.random.default_rng(seed).standard_normal((n * length, HIDDEN)).astype(np.float16)
    marks = np.ones(n * length, np.bool_)
    return States(values, np.arange(n * length, dtype=np.int32), marks, marks, np.arange(n + 1) * length)


@pytest.mark.parametrize("head", ["cls", "emb"])
def test_a_matrix_has_the_scores_of_its_pairs(head: str) -> None:
    torch.manual_seed(0)
    tower = PairTower(HIDDEN, head).eval()
    torch.nn.init.normal_(tower.joint.up.weight)
    queries, documents = made_states(3, 4, 0), made_states(5, 6, 1)
    found = tower.matrix(queries, documents)
    with torch.no_grad():
        pair = tower(tower.entered(queries, [2], is_query=True), tower.entered(documents, [4], is_query=False))
    assert found.shape == (3, 5)
    np.testing.assert_allclose(found[2, 4], pair[0].numpy(), rtol=1e-4)
    assert len(np.unique(found)) == found.size


@pytest.mark.parametrize("head", ["cls", "emb"])
def test_training_lowers_the_loss(head: str) -> None:
    torch.manual_seed(0)
    documents = made_states(12, 5, 0)
    own = Questions(
        documents, documents, np.arange(12), np.stack([np.delete(np.arange(12), item) for item in range(12)])
    )
    losses = train(PairTower(HIDDEN, head), own, n_steps=40, seed=0)
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_the_claims_of_both_heads_follow_from_their_numbers() -> None:
    def outcome(rank: float, kurtosis: float, value: float) -> Outcome:
        queries = {str(query): value for query in range(5)}
        shape = {
            "rank at 0.01": rank,
            "rank at 0.0012": 2 * rank,
            "energy": rank,
            "skewness": 1.0,
            "kurtosis": kurtosis,
        }
        series = {"scores": [-1.0, 0.0, 1.0], "density": [0.1, 0.5, 0.0], "spectrum": [1.0, 0.5]}
        return Outcome({"RR@10": queries, "BM25": queries, "anncur": queries}, shape, series)

    outcomes = {f"cls/{seed}": outcome(60, 5, 0.5) for seed in range(3)}
    outcomes |= {f"emb/{seed}": outcome(20, 1, 0.5) for seed in range(3)}
    for own in EXPERIMENTS:  # all that a judgement shows goes to a file
        json.dumps([asdict(figure) for figure in own.judge(outcomes).figures])
    checks = {own.id: [check.verdict for check in own.judge(outcomes).checks] for own in EXPERIMENTS}
    assert checks == {"A2": ["holds"] * 3 + ["not seen here"], "A3": ["holds"] * 2, "A4": ["holds", "not seen here"]}
