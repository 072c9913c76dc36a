"""Examples to texts: one positive and its negatives for each query, and which passages each query may be trained
against. The choice depends on the seed, the epoch and the example alone, not on the batch or the process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.train.batching.plan import Batch, BatchingConfig, Position, plan_epoch, share_of
from plait.train.data.example_store import Pool, Pooled
from plait.train.devices import n_processes, process
from plait.train.tensors import BatchFacts


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A query with its passages, the positive first; passages are numbers of the pool."""

    query: str
    passages: tuple[int, ...]
    scores: tuple[float, ...] | None  # of a teacher, one for each passage
    positives: frozenset[int]  # all that answer the query, chosen or not


@dataclass(frozen=True, slots=True, eq=False)
class TextBatch:
    """A batch as texts. Document i belongs to query i // group, and is its positive if i % group is 0.

    Texts are those of one process; what is known of the batch is of all processes.
    """

    queries: list[str]
    documents: list[str]
    group: int
    teacher: NDArray[np.float32] | None  # (all queries, group)
    allowed: NDArray[np.bool_]  # (all queries, all documents): which passages a query is scored against

    @classmethod
    def of_texts(cls, texts: list[str]) -> TextBatch:
        """Texts alone, as pre-training takes them."""
        return cls(texts, [], 0, None, np.zeros((0, 0), np.bool_))


def choose(example: Pooled, n_negatives: int, *, seed: int, epoch: int) -> Group:
    """One of the positives, and `n_negatives` of the negatives. An example with fewer repeats them, and the repeats
    are not allowed in any softmax; one with none cannot be used."""
    rng = np.random.default_rng([seed, epoch, example.number])
    positive = int(rng.integers(len(example.positives))) if len(example.positives) > 1 else 0
    if not example.positives:
        raise ConfigError(f"the query {example.query!r:.60} of {example.source} has no positive to train on")
    places = _draw(len(example.negatives), n_negatives, rng, example)
    passages = (example.positives[positive], *(example.negatives[place] for place in places))
    scores = None
    if example.positive_scores is not None and (example.negative_scores is not None or not places):
        of_negatives = example.negative_scores or ()
        scores = (example.positive_scores[positive], *(of_negatives[place] for place in places))
    return Group(example.query, passages, scores, frozenset(example.positives))


def _draw(n_there: int, n_wanted: int, rng: np.random.Generator, example: Pooled) -> list[int]:
    if n_wanted == 0:
        return []
    if n_there == 0:
        raise ConfigError(
            f"batching.n_negatives is {n_wanted}, but the query {example.query!r:.60} of {example.source} has no "
            f"negative; mine negatives (the section mining of the recipe), or set n_negatives to 0"
        )
    order = rng.permutation(n_there).tolist()
    return [order[place % n_there] for place in range(n_wanted)]


def allowed_passages(groups: Sequence[Group]) -> NDArray[np.bool_]:
    """(queries, documents). A query is scored against each different passage of the batch once, in its own list if it
    is there; and against no passage that is known to answer it but its own positive."""
    numbers = np.array([number for group in groups for number in group.passages], np.int64)
    size = len(groups[0].passages)
    first = np.zeros(len(numbers), np.bool_)
    first[np.unique(numbers, return_index=True)[1]] = True
    allowed = np.zeros((len(groups), len(numbers)), np.bool_)
    for row, group in enumerate(groups):
        allowed[row] = first & ~np.isin(numbers, [*group.positives, *group.passages])
        for place, number in enumerate(group.passages):
            repeated = number in group.passages[:place]
            allowed[row, row * size + place] = place == 0 or (number not in group.positives and not repeated)
    return allowed


def collate(pool: Pool, groups: Sequence[Group], own: slice = slice(None)) -> TextBatch:
    """The texts of `own` groups, and what is known of all. The teacher's scores are given if every group has them."""
    size = len(groups[0].passages)
    teacher = None
    if all(group.scores is not None for group in groups):
        teacher = np.array([group.scores for group in groups], np.float32)
    mine = groups[own]
    texts = [passage.text for passage in pool.passages([number for group in mine for number in group.passages])]
    return TextBatch([group.query for group in mine], texts, size, teacher, allowed_passages(groups))


class Stream:
    """Gives the part of this process of each batch. `position` is that of the next one; setting out from it again gives
    the same batches."""

    def __init__(
        self, pool: Pool, config: BatchingConfig, position: Position, *, weights: Sequence[float] = ()
    ) -> None:
        self._pool, self._config, self._weights = pool, config, weights
        self.position = position
        n_without = int((pool.n_negatives == 0).sum())
        if config.n_negatives and n_without:
            raise ConfigError(
                f"batching.n_negatives is {config.n_negatives}, but {n_without:,} of {len(pool):,} examples have no "
                f"negative; mine negatives (the section mining of the recipe), or set n_negatives to 0"
            )
        self._plan = self._planned()

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._plan)

    def next(self) -> TextBatch:
        if self.position.batch >= len(self._plan):
            self.position = replace(self.position, epoch=self.position.epoch + 1, batch=0)
            self._plan = self._planned()
        numbers = self._plan[self.position.batch]
        at, self.position = self.position, replace(self.position, batch=self.position.batch + 1)
        examples = self._pool.get(numbers)
        own = share_of(len(numbers), process(), n_processes())
        if not examples[0].positives:  # bare texts, for pre-training
            return TextBatch.of_texts([example.query for example in examples[own]])
        chosen = [choose(example, self._config.n_negatives, seed=at.seed, epoch=at.epoch) for example in examples]
        return collate(self._pool, chosen, own)

    def _planned(self) -> list[Batch]:
        at = self.position
        weights = self._weights
        return plan_epoch(
            self._pool, self._config, seed=at.seed, epoch=at.epoch, n_processes=n_processes(), weights=weights
        )


def facts_of(batch: TextBatch, *, step: int, device: torch.device | str = "cpu") -> BatchFacts:
    teacher = None if batch.teacher is None else torch.from_numpy(batch.teacher).to(device)
    return BatchFacts(batch.group, torch.from_numpy(batch.allowed).to(device), teacher, step)
