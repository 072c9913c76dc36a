"""Batches as texts, epoch after epoch: a positive and negatives for each query, and which passages each query may be
trained against. The draw depends on the seed, the epoch and the example alone, not on the batch or the process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.train.batching.plan import Batch, BatchingConfig, Position, plan_epoch, process_slice
from plait.train.data.example_store import ExampleStore, StoredExample
from plait.train.devices import n_processes, process
from plait.train.tensors import BatchTargets


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A query with its passages, the positive first; passages are numbers of the store."""

    query: str
    passages: tuple[int, ...]
    scores: tuple[float, ...] | None  # of a teacher, one for each passage
    positives: frozenset[int]  # all passages that answer the query, drawn or not


@dataclass(frozen=True, slots=True, eq=False)
class TextBatch:
    """A batch as texts. Document i belongs to query i // group, and is its positive if i % group is 0.

    The texts are those of one process; `teacher` and `allowed` are for all processes.
    """

    queries: list[str]
    documents: list[str]
    group: int
    teacher: NDArray[np.float32] | None  # (all queries, group)
    allowed: NDArray[np.bool_]  # (all queries, all documents): which passages a query is scored against

    @classmethod
    def of_texts(cls, texts: list[str]) -> TextBatch:
        """Texts without passages, for pre-training."""
        return cls(texts, [], 0, None, np.zeros((0, 0), np.bool_))


class Stream:
    """Yields this process's part of each batch. `position` is that of the next batch; a stream that starts from it
    yields the same batches."""

    def __init__(
        self, store: ExampleStore, config: BatchingConfig, position: Position, *, weights: Sequence[float] = ()
    ) -> None:
        self._store, self._config, self._weights = store, config, weights
        self.position = position
        n_without = int((store.n_negatives == 0).sum())
        if config.n_negatives and n_without:
            raise ConfigError(
                f"batching.n_negatives is {config.n_negatives}, but {n_without:,} of {len(store):,} examples have no "
                f"negative; mine negatives (the section mining of the recipe), or set n_negatives to 0"
            )
        self._plan = self._plan_epoch()

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._plan)

    def next(self) -> TextBatch:
        if self.position.batch >= len(self._plan):
            self.position = replace(self.position, epoch=self.position.epoch + 1, batch=0)
            self._plan = self._plan_epoch()
        numbers = self._plan[self.position.batch]
        at, self.position = self.position, replace(self.position, batch=self.position.batch + 1)
        examples = self._store.get(numbers)
        mine = process_slice(len(numbers), process(), n_processes())
        if not examples[0].positives:  # texts without passages, for pre-training
            return TextBatch.of_texts([example.query for example in examples[mine]])
        groups = [choose(example, self._config.n_negatives, seed=at.seed, epoch=at.epoch) for example in examples]
        return collate(self._store, groups, mine)

    def _plan_epoch(self) -> list[Batch]:
        at = self.position
        return plan_epoch(
            self._store,
            self._config,
            seed=at.seed,
            epoch=at.epoch,
            n_processes=n_processes(),
            weights=self._weights,
        )


def choose(example: StoredExample, n_negatives: int, *, seed: int, epoch: int) -> Group:
    """Draws one positive and `n_negatives` negatives. An example with fewer negatives repeats them, and repetitions
    take part in no softmax; an example with none is an error."""
    rng = np.random.default_rng([seed, epoch, example.number])
    positive = int(rng.integers(len(example.positives))) if len(example.positives) > 1 else 0
    if not example.positives:
        raise ConfigError(f"the query {example.query!r:.60} of {example.source} has no positive to train on")
    drawn = _draw(len(example.negatives), n_negatives, rng, example)
    passages = (example.positives[positive], *(example.negatives[number] for number in drawn))
    scores = None
    if example.positive_scores is not None and (example.negative_scores is not None or not drawn):
        negative_scores = example.negative_scores or ()
        scores = (example.positive_scores[positive], *(negative_scores[number] for number in drawn))
    return Group(example.query, passages, scores, frozenset(example.positives))


def _draw(n_available: int, n_wanted: int, rng: np.random.Generator, example: StoredExample) -> list[int]:
    if n_wanted == 0:
        return []
    if n_available == 0:
        raise ConfigError(
            f"batching.n_negatives is {n_wanted}, but the query {example.query!r:.60} of {example.source} has no "
            f"negative; mine negatives (the section mining of the recipe), or set n_negatives to 0"
        )
    order = rng.permutation(n_available).tolist()
    return [order[number % n_available] for number in range(n_wanted)]


def allowed_passages(groups: Sequence[Group]) -> NDArray[np.bool_]:
    """(queries, documents). A query is scored once against each distinct passage of the batch, in its own list if the
    passage is there, and against no known answer except its own positive."""
    numbers = np.array([number for group in groups for number in group.passages], np.int64)
    size = len(groups[0].passages)
    is_first = np.zeros(len(numbers), np.bool_)
    is_first[np.unique(numbers, return_index=True)[1]] = True
    allowed = np.zeros((len(groups), len(numbers)), np.bool_)
    for row, group in enumerate(groups):
        allowed[row] = is_first & ~np.isin(numbers, [*group.positives, *group.passages])
        for rank, number in enumerate(group.passages):
            repeated = number in group.passages[:rank]
            allowed[row, row * size + rank] = rank == 0 or (number not in group.positives and not repeated)
    return allowed


def collate(store: ExampleStore, groups: Sequence[Group], mine: slice = slice(None)) -> TextBatch:
    """The texts of the groups in the slice `mine`, and masks of all groups. Teacher scores are None unless every group
    has them."""
    size = len(groups[0].passages)
    teacher = None
    if all(group.scores is not None for group in groups):
        teacher = np.array([group.scores for group in groups], np.float32)
    my_groups = groups[mine]
    texts = [passage.text for passage in store.passages([number for group in my_groups for number in group.passages])]
    return TextBatch([group.query for group in my_groups], texts, size, teacher, allowed_passages(groups))


def batch_targets(batch: TextBatch, *, step: int, device: torch.device | str = "cpu") -> BatchTargets:
    """The arrays of a batch as tensors on a device."""
    teacher = None if batch.teacher is None else torch.from_numpy(batch.teacher).to(device)
    return BatchTargets(batch.group, torch.from_numpy(batch.allowed).to(device), teacher, step)
