"""Batches: like lengths together, no shared positives, the same for all processes, and resumable."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from plait.errors import ConfigError
from plait.train.batching.plan import BatchingConfig, Position, bucket_numbers, plan_epoch, process_slice
from plait.train.batching.stream import Group, Stream, allowed_passages, choose
from plait.train.data.example import Example, Passage
from plait.train.data.example_store import ExampleStore, StoredExample, build_example_store


def make(tmp_path: Path, n_examples: int = 60, n_passages: int = 25, n_negatives: int = 2) -> ExampleStore:
    examples = [
        Example(
            f"query {number} " + "long " * (number % 13),
            (Passage(f"passage {number % n_passages}"),),
            tuple(Passage(f"negative {number} {place}") for place in range(n_negatives)),
            source=("one", "two")[number % 2],
        )
        for number in range(n_examples)
    ]
    return build_example_store(tmp_path / "pool.sqlite", examples)


def test_no_two_examples_of_a_batch_share_a_positive_or_mix_sources_and_buckets(tmp_path: Path) -> None:
    pool, config = make(tmp_path), BatchingConfig(size=6, n_buckets=3)
    buckets = bucket_numbers(pool.lengths, config)
    for batch in plan_epoch(pool, config, seed=1, epoch=0):
        positives = [int(number) for example in batch for number in pool.positives_of(example)]
        assert len(set(positives)) == len(positives)
        assert len({int(pool.sources[example]) for example in batch}) == 1
        assert len({int(buckets[example]) for example in batch}) == 1


def test_an_epoch_has_each_example_at_most_once_and_few_are_left_out(tmp_path: Path) -> None:
    pool = make(tmp_path)
    planned = [example for batch in plan_epoch(pool, BatchingConfig(size=4), seed=1, epoch=0) for example in batch]
    assert max(Counter(planned).values()) == 1
    assert len(planned) >= 50


def test_epochs_and_seeds_differ_and_the_same_ones_agree(tmp_path: Path) -> None:
    pool, config = make(tmp_path), BatchingConfig(size=4)
    first = plan_epoch(pool, config, seed=1, epoch=0)
    assert first == plan_epoch(pool, config, seed=1, epoch=0)
    assert first != plan_epoch(pool, config, seed=1, epoch=1)
    assert first != plan_epoch(pool, config, seed=2, epoch=0)


def test_the_slices_of_all_processes_are_the_batch(tmp_path: Path) -> None:
    pool = make(tmp_path)
    for batch in plan_epoch(pool, BatchingConfig(size=7, n_buckets=2), seed=0, epoch=0, n_processes=3):
        parts = [batch[process_slice(len(batch), process, 3)] for process in range(3)]
        assert len({len(part) for part in parts}) == 1
        assert [example for part in parts for example in part] == batch


def test_bucket_edges_and_sizes_of_the_recipe_are_used() -> None:
    config = BatchingConfig(bucket_edges=(0, 500, 1000), bucket_sizes=(48, 32, 20))
    assert bucket_numbers(np.array([0, 499, 500, 999, 1000, 9000]), config).tolist() == [0, 0, 1, 1, 2, 2]


def test_a_weight_repeats_a_source_or_takes_a_moving_part(tmp_path: Path) -> None:
    pool, config = make(tmp_path, n_passages=60), BatchingConfig(size=1, n_buckets=1)
    parts = []
    for epoch in range(2):
        planned = plan_epoch(pool, config, seed=0, epoch=epoch, weights=[2.0, 0.5])
        counts = Counter(example for batch in planned for example in batch)
        assert {counts[example] for example in range(0, 60, 2)} == {2}
        parts.append({example for example in range(1, 60, 2) if counts[example]})
        assert len(parts[-1]) == 15
    assert parts[0].isdisjoint(parts[1])


def test_a_stream_resumes_from_its_position(tmp_path: Path) -> None:
    pool, config = make(tmp_path), BatchingConfig(size=4, n_negatives=1)
    stream = Stream(pool, config, Position(3))
    seen = [stream.next() for _ in range(2 * len(stream))]
    halfway = Stream(pool, config, Position(3))
    for _ in range(5):
        halfway.next()
    again = Stream(pool, config, halfway.position)
    for batch in seen[5:]:
        result = again.next()
        assert (result.queries, result.documents) == (batch.queries, batch.documents)


def test_data_without_negatives_is_refused_before_the_first_step(tmp_path: Path) -> None:
    pool = make(tmp_path, n_negatives=0)
    with pytest.raises(ConfigError, match="n_negatives is 2, but 60 of 60 examples have no negative; mine"):
        Stream(pool, BatchingConfig(n_negatives=2), Position(0))


def test_a_plan_without_batches_says_why(tmp_path: Path) -> None:
    pool = make(tmp_path, n_examples=3)
    with pytest.raises(ConfigError, match="no batch can be made of 3 examples in 4 processes"):
        plan_epoch(pool, BatchingConfig(size=8), seed=0, epoch=0, n_processes=4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bucket_edges": (0, 5, 5)}, "each must be above"),
        ({"bucket_edges": (1, 5)}, "must begin at 0"),
        ({"bucket_edges": (0, 5), "bucket_sizes": (1,)}, "1 bucket_sizes for 2 buckets"),
        ({"split": "half"}, "choose one of none, checkpoint, gradcache"),
        ({"size": 0}, "size is 0"),
    ],
)
def test_batching_that_cannot_work_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BatchingConfig(**values)  # type: ignore[arg-type]


def test_too_few_negatives_are_repeated_and_none_is_an_error() -> None:
    example = StoredExample(0, "q", (1,), (5, 6), (1.0,), (0.5, 0.6), "s")
    group = choose(example, 5, seed=0, epoch=0)
    assert sorted(set(group.passages[1:])) == [5, 6]
    scores = {1: 1.0, 5: 0.5, 6: 0.6}
    assert group.scores == tuple(scores[number] for number in group.passages)
    with pytest.raises(ConfigError, match=r"n_negatives is 2, but the query 'q' of s has no negative; mine"):
        choose(StoredExample(0, "q", (1,), (), None, None, "s"), 2, seed=0, epoch=0)


def test_a_passage_that_answers_a_query_is_never_its_negative() -> None:
    # 9 answers the first query as well, and the second brings it as its negative; 5 is a negative of both.
    groups = [Group("a", (1, 5), None, frozenset({1, 9})), Group("b", (2, 9), None, frozenset({2}))]
    assert allowed_passages(groups).tolist() == [[True, True, True, False], [True, True, True, True]]


def test_a_passage_counts_once_in_each_query_and_in_its_own_list_first() -> None:
    groups = [Group("a", (1, 5, 5), None, frozenset({1})), Group("b", (2, 5, 1), None, frozenset({2}))]
    assert allowed_passages(groups).astype(int).tolist() == [[1, 1, 0, 1, 0, 0], [0, 0, 0, 1, 1, 1]]
