"""The capacity planner: what a collection of a given size takes, from sizes of files and measured rates.

Every number that is assumed is a field of `Assumptions`, with its default, and the plan prints them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from plait.checks import check_count
from plait.cluster.simulation import ClusterModel, ServiceTime, SimulatedLatency, simulate
from plait.codec.packing import check_bits
from plait.codec.train import cells_for
from plait.errors import ConfigError
from plait.search.multivector.probe import probe_by_size

MAX_UTILIZATION = 0.6  # of cores; above it queues make p99 several times the service time


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the collection must do."""

    documents: float
    tokens: float = 120.0  # multi vectors of a document; 0: none
    bits: int = 2  # of a residual code
    dim: int = 128  # of a multi vector
    dense_dim: int = 384  # of the dense vector; 0: none
    text_bytes: float = 600.0  # of a document's text, in UTF-8
    replicas: int = 2
    qps: float = 100.0
    recall: float = 0.9  # of the best 10 by exhaustive search

    def __post_init__(self) -> None:
        check_bits(self.bits)
        check_count("replicas", self.replicas)
        if self.documents < 1 or self.qps <= 0 or self.tokens < 0:
            raise ConfigError("documents must be at least 1, queries a second above 0, and tokens not negative")
        if not 0.5 <= self.recall <= 0.99:
            raise ConfigError(f"recall is {self.recall}; the planner knows from 0.5 to 0.99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Rates of one core, and prices. The rates of centroids, comparing, codes and rescoring were measured on one core
    with AVX-512 VNNI that was busy with other work; the others are guesses. Measure your own machines."""

    machine_memory: float = 128e9  # bytes
    machine_disk: float = 4e12  # bytes
    machine_cores: int = 32
    machine_price: float = 1.60  # dollars an hour
    hot_share: float = 0.35  # of a shard's files that must be in memory for searches without reads from disk
    memory_share: float = 0.8  # of a machine's memory that files may take
    disk_share: float = 0.7  # of its disk; the rest is for compaction
    documents_per_shard: float = 20e6  # at most: a shard is built and moved as a whole
    query_rows: int = 32  # vectors of a query
    centroid_rate: float = 1.2e9  # products of a query row with a centroid that a core makes in a second
    posting_rate: float = 2.0e8  # postings of cells that a core reads in a second
    compare_rate: float = 1.4e9  # vectors of candidates that a core compares by their centroids in a second
    code_rate: float = 6.0e7  # vectors of candidates that a core scores by codes in a second, with pruning
    rescore_rate: float = 1.8e7  # the same without pruning
    fixed_ms: float = 1.5  # of a shard for every query: four rounds of messages, the full text, fetching hits
    network_ms: float = 2.0  # of all rounds together
    coordinator_ms: float = 12.0  # encoding the query and merging
    straggler_share: float = 0.01  # of requests
    straggler_ms: float = 40.0  # mean delay of those
    failed_share: float = 0.001  # of the time that a replica is down
    hedge_factor: float = 3.0  # times the computing of a shard, after which a request goes to another replica as well


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """What it takes. Bytes are of one copy; machines hold all replicas."""

    load: Load
    assumptions: Assumptions
    bytes_by_part: dict[str, float]
    n_shards: int
    n_machines: int
    limited_by: str  # memory, disk or cores
    shard_ms: float  # computing of one shard for one query
    utilization: float
    dollars_per_hour: float
    dollars_per_million: float  # queries, at the full load
    latency: SimulatedLatency

    @property
    def n_bytes(self) -> float:
        return sum(self.bytes_by_part.values())

    @property
    def memory_bytes(self) -> float:
        """That files take in memory, in all replicas."""
        return self.n_bytes * self.assumptions.hot_share * self.load.replicas

    @property
    def disk_bytes(self) -> float:
        """In all replicas."""
        return self.n_bytes * self.load.replicas


def vector_bytes(dim: int, bits: int, n_centroids: int) -> float:
    """Of one coded multi vector: its codes, length, factor and centroid id, and its row in the postings."""
    return dim * bits / 8 + 2 + (2 if n_centroids <= 1 << 16 else 4) + 4


def size_of(load: Load, n_shards: int) -> dict[str, float]:
    """Bytes of one copy, by part. Every shard has the codebook."""
    n_vectors, n_centroids = load.documents * load.tokens, n_centroids_of(load, n_shards)
    sizes = {
        "multi vectors": n_vectors * vector_bytes(load.dim, load.bits, n_centroids) if n_vectors else 0.0,
        "codebooks": float(n_centroids * load.dim * n_shards),
        "dense vectors": load.documents * load.dense_dim * 4.0,
        # The catalogue has the text, and an inverted index of its words: about as much again.
        "texts and words": load.documents * (2.0 * load.text_bytes + 100.0),
    }
    return {name: size for name, size in sizes.items() if size}


def recall_factor(recall: float) -> float:
    """How many times the candidates of the defaults, which find nine in ten, a recall takes.

    Candidates that are missed fall with the candidates by about the power of -1: twice as many halve the misses.
    """
    return (1 - 0.9) / (1 - recall)


def n_centroids_of(load: Load, n_shards: int) -> int:
    """Of the codebook that all shards share; see plait.cluster.build.fit_codebook."""
    n_vectors = load.documents * load.tokens / n_shards
    return cells_for(max(int(n_vectors), 1)) if n_vectors else 0


def shard_seconds(load: Load, assumptions: Assumptions, n_shards: int) -> float:
    """Computing of one shard for one query, on one core: all centroids, the postings of the cells that are read, and
    the candidates of each stage of multi-vector search."""
    fixed = assumptions.fixed_ms / 1e3
    n_cells, n_vectors = n_centroids_of(load, n_shards), load.documents * load.tokens / n_shards
    if not n_cells:
        return fixed
    probe = probe_by_size(max(int(load.documents / n_shards), 1), 10)
    factor = recall_factor(load.recall)
    postings = assumptions.query_rows * probe.n_probe * n_vectors / n_cells
    return (
        fixed
        + n_cells * assumptions.query_rows / assumptions.centroid_rate
        + factor * postings / assumptions.posting_rate
        + factor * probe.n_candidates * load.tokens / assumptions.compare_rate
        + factor * probe.n_code_scored * load.tokens / assumptions.code_rate
        + probe.n_rescored * load.tokens / assumptions.rescore_rate
    )


def plan_capacity(
    load: Load, assumptions: Assumptions | None = None, *, n_shards: int | None = None, n_queries: int = 4000
) -> CapacityPlan:
    """The smallest number of equal machines that has the memory, the disk and the cores; and its latencies."""
    given = Assumptions() if assumptions is None else assumptions
    if n_shards is None:
        n_shards = max(1, math.ceil(load.documents / given.documents_per_shard))
    sizes = size_of(load, n_shards)
    total = sum(sizes.values())
    seconds = shard_seconds(load, given, n_shards)
    mean = seconds + given.straggler_share * given.straggler_ms / 1e3
    needs = {
        "memory": total * given.hot_share * load.replicas / (given.memory_share * given.machine_memory),
        "disk": total * load.replicas / (given.disk_share * given.machine_disk),
        "cores": load.qps * n_shards * mean / (MAX_UTILIZATION * given.machine_cores),
    }
    limited_by = max(needs, key=lambda name: needs[name])
    n_machines = max(math.ceil(needs[limited_by]), load.replicas)
    cores = max(1, math.floor(n_machines * given.machine_cores / (n_shards * load.replicas)))
    model = ClusterModel(
        n_shards=n_shards,
        n_replicas=load.replicas,
        qps=load.qps,
        service=ServiceTime(
            fixed=0.8 * seconds,
            random=0.2 * seconds,
            straggler_share=given.straggler_share,
            straggler_seconds=given.straggler_ms / 1e3,
        ),
        servers=cores,
        network=given.network_ms / 1e3,
        coordinator=given.coordinator_ms / 1e3,
        hedge_after=given.hedge_factor * seconds,
        failed_share=given.failed_share,
    )
    per_hour = n_machines * given.machine_price
    return CapacityPlan(
        load=load,
        assumptions=given,
        bytes_by_part=sizes,
        n_shards=n_shards,
        n_machines=n_machines,
        limited_by=limited_by,
        shard_ms=seconds * 1e3,
        utilization=model.utilization,
        dollars_per_hour=per_hour,
        dollars_per_million=per_hour / (load.qps * 3600) * 1e6,
        latency=simulate(model, n_queries=n_queries),
    )


def describe(plan: CapacityPlan, *, assumptions: bool = True) -> list[str]:
    """The plan in lines, for people."""
    load, given = plan.load, plan.assumptions
    lines = [
        f"documents            {load.documents:,.0f}",
        *(f"{name:<20} {_size(size)}" for name, size in plan.bytes_by_part.items()),
        f"{'one copy':<20} {_size(plan.n_bytes)}",
        f"{'shards':<20} {plan.n_shards:,}",
        f"{'replicas':<20} {load.replicas}",
        f"{'disk, all replicas':<20} {_size(plan.disk_bytes)}",
        f"{'memory, all replicas':<20} {_size(plan.memory_bytes)}",
        f"{'machines':<20} {plan.n_machines:,} (limited by {plan.limited_by})",
        f"{'dollars an hour':<20} {plan.dollars_per_hour:,.2f}",
        f"{'dollars per million':<20} {plan.dollars_per_million:,.2f} queries at {load.qps:g} a second",
        f"{'a shard computes':<20} {plan.shard_ms:.1f} ms for a query; cores are busy {plan.utilization:.0%}",
        f"{'p50, p95, p99':<20} "
        + ", ".join(f"{plan.latency.percentile(share) * 1e3:.0f}" for share in (0.5, 0.95, 0.99))
        + " ms, simulated",
        f"{'hedged requests':<20} {plan.latency.hedged_share:.2%}",
        f"{'partial answers':<20} {plan.latency.partial_share:.4%}",
    ]
    if not assumptions:
        return lines
    lines += ["", "Assumed (--assume changes them; measure your own machines):"]
    lines += [f"  {field.name:<20} {getattr(given, field.name):g}" for field in fields(given)]
    return [
        *lines,
        "  queries arrive at random; replicas fail independently; shards are of one size; candidates grow with the",
        "  root of a shard's size, and in proportion to 1 / (1 - recall)",
    ]


def _size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n_bytes < 1000:
            return f"{n_bytes:,.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.3g} PB"
