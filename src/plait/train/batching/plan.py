"""Which examples go together. An epoch is planned whole from its seed, alike on every process, so that a position in it
is all that resuming needs; each process then takes its slice of every batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.train.data.example_store import Pool

SPLITS = ("none", "checkpoint", "gradcache")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingConfig:
    """Batches of like length. A batch holds examples of one source and one bucket."""

    size: int = 32  # queries of a batch over all processes, where `sizes` does not say otherwise
    edges: tuple[int, ...] = ()  # rising lengths in tokens; bucket i begins at edges[i]. Empty: buckets of equal counts
    sizes: tuple[int, ...] = ()  # queries of a batch for each bucket; empty: `size` for all
    n_buckets: int = 8  # of equal counts, where there are no edges; 1 is no grouping
    n_negatives: int = 0  # of each query, drawn anew each epoch; others' passages are negatives besides
    split: str = "none"  # how a batch goes through the model: whole, in checkpointed parts, or by GradCache
    part: int = 32  # texts that go through the model together, where it is split
    shuffle: bool = True  # False keeps the order of the data within buckets

    def __post_init__(self) -> None:
        for name in ("size", "n_buckets", "part"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.n_negatives < 0:
            raise ConfigError(f"n_negatives is {self.n_negatives}; it must be 0 or more")
        if any(later <= earlier for earlier, later in zip(self.edges, self.edges[1:], strict=False)):
            raise ConfigError(f"edges are {list(self.edges)}; each must be above the one before")
        if self.edges and self.edges[0] != 0:
            raise ConfigError(f"edges begin at {self.edges[0]}; the first bucket must begin at 0")
        if self.sizes and len(self.sizes) != (len(self.edges) or self.n_buckets):
            raise ConfigError(
                f"there are {len(self.sizes)} sizes for {len(self.edges) or self.n_buckets} buckets; each needs one"
            )
        if any(size < 1 for size in self.sizes):
            raise ConfigError(f"sizes are {list(self.sizes)}; each must be at least 1")
        if self.split not in SPLITS:
            raise ConfigError(f"split is {self.split!r}; choose one of {', '.join(SPLITS)}")

    @property
    def group(self) -> int:
        """Passages of each query: one positive and its negatives."""
        return 1 + self.n_negatives


Batch = list[int]  # numbers of examples


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run is in its data: the next batch of an epoch. With the seed and the data, this decides all to come."""

    seed: int
    epoch: int = 0
    batch: int = 0


def plan_epoch(
    pool: Pool, config: BatchingConfig, *, seed: int, epoch: int, n_processes: int = 1, weights: Sequence[float] = ()
) -> list[Batch]:
    """All batches of an epoch, over all processes; a batch divides evenly among them.

    A batch holds examples of one source and one bucket, and no two of them share a positive: the positive of one would
    be a negative of the other. What is left of a bucket makes a smaller batch, if each process gets two of it.
    """
    rng = np.random.default_rng([seed, epoch])
    buckets = buckets_of(pool.lengths, config)
    batches: list[Batch] = []
    for source in range(len(pool.source_names)):
        members = _drawn(np.flatnonzero(pool.sources == source), weights[source] if weights else 1.0, epoch)
        for bucket in range(int(buckets.max(initial=0)) + 1):
            own = members[buckets[members] == bucket]
            if config.shuffle:
                own = rng.permutation(own)
            size = config.sizes[bucket] if config.sizes else config.size
            batches += _filled(own, pool, size, n_processes)
    if config.shuffle:
        batches = [batches[place] for place in rng.permutation(len(batches))]
    if not batches:
        raise ConfigError(
            f"no batch can be made of {len(pool):,} examples in {n_processes} processes: each needs two of one "
            f"source and bucket that do not share a positive; use fewer processes or fewer buckets"
        )
    return batches


def buckets_of(lengths: NDArray[np.int64], config: BatchingConfig) -> NDArray[np.int64]:
    """The bucket of each length; lengths beyond the last edge are in the last bucket."""
    if config.edges:
        edges = np.array(config.edges[1:], np.int64)
    else:
        shares = np.arange(1, config.n_buckets) / config.n_buckets
        edges = (
            np.quantile(lengths, shares, method="higher").astype(np.int64) if len(lengths) else np.zeros(0, np.int64)
        )
    return np.searchsorted(edges, lengths, side="right").astype(np.int64)


def share_of(n_items: int, process: int, n_processes: int) -> slice:
    """The part of one process: neighbours, in order, so that the parts one after another are the batch."""
    size = n_items // n_processes
    return slice(process * size, (process + 1) * size)


def _drawn(members: NDArray[np.int64], weight: float, epoch: int) -> NDArray[np.int64]:
    """A source as often as its weight says; the broken part is a stretch that moves on with each epoch."""
    whole = int(weight)
    n_more = round((weight - whole) * len(members))
    order = np.random.default_rng(len(members)).permutation(members)
    places = (np.arange(n_more) + epoch * n_more) % max(1, len(members))
    return np.concatenate([np.tile(members, whole), np.sort(order[places])])


def _filled(members: NDArray[np.int64], pool: Pool, size: int, n_processes: int) -> Iterator[Batch]:
    """Batches in the order of the members; one that shares a positive with a batch that is filling goes to the next
    batch that has room for it."""
    size = max(n_processes, size - size % n_processes)
    filling: list[tuple[Batch, set[int]]] = []
    for member in members.tolist():
        positives = set(pool.positives_of(member).tolist())
        place = next((place for place, (_, taken) in enumerate(filling) if not taken & positives), len(filling))
        if place == len(filling):
            filling.append(([], set()))
        batch, taken = filling[place]
        batch.append(member)
        taken |= positives
        if len(batch) == size:
            yield filling.pop(place)[0]
    smallest = 2 * n_processes if size > n_processes else n_processes
    for batch, _ in filling:
        if len(batch) >= min(size, smallest):
            yield batch[: len(batch) - len(batch) % n_processes]
