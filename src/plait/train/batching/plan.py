"""Which examples go into one batch. An epoch is planned as a whole from its seed, identically on every process, so a
position in the plan is all that resuming needs. Each process then takes its slice of every batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.train.data.example_store import ExampleStore

SPLITS = ("none", "checkpoint", "gradcache")

Batch = list[int]  # numbers of examples


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingConfig:
    """Batches of texts of similar length. A batch holds examples of one source and one length bucket."""

    size: int = 32  # queries of a batch over all processes, unless `bucket_sizes` is set
    bucket_edges: tuple[
        int, ...
    ] = ()  # rising lengths in tokens at which buckets begin; empty: buckets of equal counts
    bucket_sizes: tuple[int, ...] = ()  # queries of a batch for each bucket; empty: `size` for all
    n_buckets: int = 8  # buckets of equal counts, if there are no bucket_edges; 1: no grouping by length
    n_negatives: int = 0  # for each query, drawn again each epoch; passages of other queries are negatives as well
    split: str = "none"  # how a batch passes the model: whole, in gradient-checkpointed microbatches, or by GradCache
    microbatch: int = 32  # texts in one pass, if the batch is split
    shuffle: bool = True  # False keeps the order of the data within buckets

    def __post_init__(self) -> None:
        for name in ("size", "n_buckets", "microbatch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.n_negatives < 0:
            raise ConfigError(f"n_negatives is {self.n_negatives}; it must be 0 or more")
        edges, n_buckets = self.bucket_edges, len(self.bucket_edges) or self.n_buckets
        if any(later <= earlier for earlier, later in itertools.pairwise(edges)):
            raise ConfigError(f"bucket_edges are {list(edges)}; each must be above the one before")
        if edges and edges[0] != 0:
            raise ConfigError(f"bucket_edges begin at {edges[0]}; the first bucket must begin at 0")
        if self.bucket_sizes and len(self.bucket_sizes) != n_buckets:
            raise ConfigError(
                f"there are {len(self.bucket_sizes)} bucket_sizes for {n_buckets} buckets; each bucket needs one"
            )
        if any(size < 1 for size in self.bucket_sizes):
            raise ConfigError(f"bucket_sizes are {list(self.bucket_sizes)}; each must be at least 1")
        if self.split not in SPLITS:
            raise ConfigError(f"split is {self.split!r}; choose one of {', '.join(SPLITS)}")

    @property
    def group(self) -> int:
        """Passages of each query: one positive and its negatives."""
        return 1 + self.n_negatives


@dataclass(frozen=True, slots=True)
class Position:
    """The next batch of a run. With the seed and the data it determines all following batches."""

    seed: int
    epoch: int = 0
    batch: int = 0


def plan_epoch(
    store: ExampleStore,
    config: BatchingConfig,
    *,
    seed: int,
    epoch: int,
    n_processes: int = 1,
    weights: Sequence[float] = (),
) -> list[Batch]:
    """All batches of an epoch, over all processes; each divides evenly among them.

    A batch holds examples of one source and one bucket, and no two of them share a positive: the positive of one would
    be a negative of the other. The rest of a bucket makes a smaller batch, if each process gets two examples of it.
    """
    rng = np.random.default_rng([seed, epoch])
    buckets = bucket_numbers(store.lengths, config)
    batches: list[Batch] = []
    for source in range(len(store.source_names)):
        of_source = _weighted(np.flatnonzero(store.sources == source), weights[source] if weights else 1.0, epoch)
        for bucket in range(int(buckets.max(initial=0)) + 1):
            members = of_source[buckets[of_source] == bucket]
            if config.shuffle:
                members = rng.permutation(members)
            size = config.bucket_sizes[bucket] if config.bucket_sizes else config.size
            batches += _fill_batches(members, store, size, n_processes)
    if config.shuffle:
        batches = [batches[number] for number in rng.permutation(len(batches))]
    if not batches:
        raise ConfigError(
            f"no batch can be made of {len(store):,} examples in {n_processes} processes: each process needs two "
            f"examples of one source and bucket without a common positive; use fewer processes or fewer buckets"
        )
    return batches


def bucket_numbers(lengths: NDArray[np.int64], config: BatchingConfig) -> NDArray[np.int64]:
    """The bucket of each length; lengths beyond the last edge are in the last bucket."""
    if config.bucket_edges:
        edges = np.array(config.bucket_edges[1:], np.int64)
    else:
        shares = np.arange(1, config.n_buckets) / config.n_buckets
        edges = (
            np.quantile(lengths, shares, method="higher").astype(np.int64) if len(lengths) else np.zeros(0, np.int64)
        )
    return np.searchsorted(edges, lengths, side="right").astype(np.int64)


def process_slice(n_items: int, process: int, n_processes: int) -> slice:
    """The consecutive items of one process; the slices of all processes in order are the batch."""
    size = n_items // n_processes
    return slice(process * size, (process + 1) * size)


def _weighted(members: NDArray[np.int64], weight: float, epoch: int) -> NDArray[np.int64]:
    """The examples of a source, repeated `weight` times; the fractional part is a window that moves with each epoch."""
    n_whole = int(weight)
    n_more = round((weight - n_whole) * len(members))
    order = np.random.default_rng(len(members)).permutation(members)
    window = (np.arange(n_more) + epoch * n_more) % max(1, len(members))
    return np.concatenate([np.tile(members, n_whole), np.sort(order[window])])


def _fill_batches(members: NDArray[np.int64], store: ExampleStore, size: int, n_processes: int) -> Iterator[Batch]:
    """Batches in the order of the members. A member goes into the first open batch with which it shares no positive."""
    size = max(n_processes, size - size % n_processes)
    open_batches: list[tuple[Batch, set[int]]] = []
    for member in members.tolist():
        positives = set(store.positives_of(member).tolist())
        number = next(
            (number for number, (_, taken) in enumerate(open_batches) if not taken & positives),
            len(open_batches),
        )
        if number == len(open_batches):
            open_batches.append(([], set()))
        batch, taken = open_batches[number]
        batch.append(member)
        taken |= positives
        if len(batch) == size:
            yield open_batches.pop(number)[0]
    smallest = 2 * n_processes if size > n_processes else n_processes
    for batch, _ in open_batches:
        if len(batch) >= min(size, smallest):
            yield batch[: len(batch) - len(batch) % n_processes]
