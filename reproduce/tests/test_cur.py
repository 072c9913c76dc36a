from __future__ import annotations

import numpy as np
import pytest

from plait_reproduce.arms import cur

N_QUERIES, N_ITEMS, RANK = 60, 80, 4


@pytest.fixture(scope="module")
def low_rank() -> cur.Bench:
    """Scores of rank four, which a few anchors tell exactly; the dense vectors are those of other queries."""
    random = np.random.default_rng(0)
    queries, items = random.normal(size=(N_QUERIES, RANK)), random.normal(size=(N_ITEMS, RANK))
    return cur.Bench(
        (queries @ items.T).astype(np.float32),
        random.normal(size=(N_QUERIES, RANK)).astype(np.float32),
        items.astype(np.float32),
        [random.permutation(N_ITEMS).astype(np.int64) for _ in range(N_QUERIES)],
        anchors=list(range(20, N_QUERIES)),
        dev=list(range(10)),
        test=list(range(10, 20)),
    )


def test_anchors_recover_a_low_rank_matrix(low_rank: cur.Bench) -> None:
    search, chosen = cur.anncur(low_rank, n_queries=30, budget=20, k=5)
    assert set(low_rank.recalls(search, budget=20, k=5).values()) == {1.0}
    assert RANK <= chosen["anchors"] < 20


def test_adaptive_rounds_find_items_that_a_poor_retriever_misses(low_rank: cur.Bench) -> None:
    poor = low_rank.recalls(cur.rerank(low_rank, low_rank.dense_order), budget=20, k=5)
    rounds = low_rank.recalls(cur.adacur(low_rank, n_queries=30, n_rounds=4, cut=1e-3), budget=20, k=5)
    assert np.mean(list(rounds.values())) > np.mean(list(poor.values())) + 0.3


def test_settings_are_chosen_on_dev_and_measured_on_test(low_rank: cur.Bench) -> None:
    assert not set(low_rank.dev) & set(low_rank.test)
    searches = {0.0: cur.rerank(low_rank, lambda query: low_rank.words[query]),
                1.0: cur.adacur(low_rank, n_queries=30, n_rounds=4, cut=1e-3)}  # fmt: skip
    assert cur.best_on_dev(low_rank, searches, budget=20, k=5) == 1.0
    assert low_rank.recalls(searches[0.0], budget=5, k=1).keys() == {str(query) for query in low_rank.test}
