"""Methods in steps, so that the shards of a collection find what one index would find.

A few decisions of PLAID, XTR, ColXTR and WARP depend on all items: how many go on after a pruning, and which score a
token that was missed counts as. There a method yields what it knows, a `Part`, and gets what all shards know together.
In one index (`run_alone`) its own part is all there is. A shard keeps no state between steps: it runs a method again
from the start with the answers so far (`replay`).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import CodedItems
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.method import FoundItems, Method
from plait.search.multivector.query import MultiVectorQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much there is to search, in one index or in all shards together."""

    n_items: int
    n_accepted: int  # items that may be found
    n_rows: int
    n_accepted_rows: int  # rows of these items
    n_centroids: int
    n_shards: int = 1

    @classmethod
    def of(cls, items: CodedItems, item_filter: ItemFilter) -> Sizes:
        n_rows = n_accepted_rows = len(items.rows.codes)
        if len(item_filter) < len(items):
            begins, ends = items.bounds(item_filter.numbers)
            n_accepted_rows = int((ends - begins).sum())
        return cls(
            n_items=len(items),
            n_accepted=len(item_filter),
            n_rows=n_rows,
            n_accepted_rows=n_accepted_rows,
            n_centroids=len(items.codec.codebook),
        )

    @classmethod
    def total(cls, sizes: Sequence[Sizes]) -> Sizes:
        return cls(
            n_items=sum(one.n_items for one in sizes),
            n_accepted=sum(one.n_accepted for one in sizes),
            n_rows=sum(one.n_rows for one in sizes),
            n_accepted_rows=sum(one.n_accepted_rows for one in sizes),
            n_centroids=sizes[0].n_centroids,
            n_shards=sum(one.n_shards for one in sizes),
        )

    def n_cells(self, n_probe: int) -> int:
        """How many cells to read where an index of only the accepted items would read `n_probe`."""
        share = self.n_accepted / max(self.n_items, 1)
        return max(1, min(self.n_centroids, math.ceil(n_probe / max(share, 1e-9))))


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Numbers that are added up. The answer is the sum."""

    values: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TokenScores:
    """The scores of the best rows of each query row. The answer is the `n_tokens`-th best score of each query row over
    all shards, or the last if there are fewer."""

    scores: NDArray[np.float32]
    starts: NDArray[np.int64]  # (n_query + 1,)
    n_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class BestScores:
    """The scores of a shard's best items, best first. The answer is how many of them are among the `n_keep` best of all
    shards; equal scores are ordered by shard."""

    scores: NDArray[Any]
    n_keep: int


Part = Counts | TokenScores | BestScores
Steps = Generator[Part, Any, FoundItems]


@runtime_checkable
class SteppedMethod(Method, Protocol):
    """A method that can be run over shards."""

    def steps(
        self, query: MultiVectorQuery, k: int, item_filter: ItemFilter, sizes: Sizes, *, n_threads: int = 1
    ) -> Steps:
        """Finds the k best items of this index or shard; `sizes` are those of all shards."""
        ...

    def wider_than(self, sizes: Sizes, k: int) -> Self | None:
        """As `wider`, for these sizes."""
        ...


class InSteps:
    """`search` and `wider` of one index, for methods that have `steps` and `wider_than`."""

    __slots__ = ()

    def search(
        self: SteppedMethod, query: MultiVectorQuery, k: int, item_filter: ItemFilter, *, n_threads: int = 1
    ) -> FoundItems:
        sizes = Sizes.of(query.items, item_filter)
        return run_alone(self.steps(query, k, item_filter, sizes, n_threads=n_threads))

    def wider(self: SteppedMethod, query: MultiVectorQuery, k: int, item_filter: ItemFilter) -> Any:
        return self.wider_than(Sizes.of(query.items, item_filter), k)


def run_alone(steps: Steps) -> FoundItems:
    """What a method finds if there is one shard."""
    answers: list[Any] = []
    try:
        part = next(steps)
        while True:
            answers = merge_parts([part])
            part = steps.send(answers[0])
    except StopIteration as end:
        result: FoundItems = end.value
        return result


def replay(steps: Steps, answers: Sequence[Any]) -> Part | FoundItems:
    """The part that a method yields after these answers, or what it finds."""
    try:
        part = next(steps)
        for answer in answers:
            part = steps.send(answer)
        return part
    except StopIteration as end:
        result: FoundItems = end.value
        return result
    finally:
        steps.close()


def merge_parts(parts: Sequence[Part]) -> list[Any]:
    """The answer for each shard, from the parts of all of them, which are of one kind."""
    if all(isinstance(part, Counts) for part in parts):
        return [np.sum([part.values for part in parts if isinstance(part, Counts)], axis=0)] * len(parts)
    if all(isinstance(part, TokenScores) for part in parts):
        return [_thresholds([part for part in parts if isinstance(part, TokenScores)])] * len(parts)
    lists = [part for part in parts if isinstance(part, BestScores)]
    scores = np.concatenate([part.scores for part in lists]).astype(np.float64)
    owners = np.repeat(np.arange(len(lists)), [len(part.scores) for part in lists])
    best = np.lexsort((owners, -scores))[: lists[0].n_keep]
    return list(np.bincount(owners[best], minlength=len(lists)).tolist())


def _thresholds(parts: Sequence[TokenScores]) -> NDArray[np.float32]:
    if len(parts) == 1:  # it has the best rows of each query row, and those that tie with the last
        (part,) = parts
        return np.minimum.reduceat(part.scores, part.starts[:-1])
    thresholds = []
    for lane in range(len(parts[0].starts) - 1):
        scores = np.concatenate([part.scores[part.starts[lane] : part.starts[lane + 1]] for part in parts])
        n_below = max(len(scores) - parts[0].n_tokens, 0)
        thresholds.append(np.partition(scores, n_below)[n_below])
    return np.asarray(thresholds, np.float32)
