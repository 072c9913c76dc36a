"""A discrete-event simulation of a query that is fanned out to shards: queues, stragglers, hedged requests, failures.

Queries arrive at random (a Poisson process). Each asks one replica of every shard; the replica answers requests one
after the other, and the query is done when its last shard has answered. Written with arrays over queries, event by
event over replicas: a server with one queue serves request i at max(arrival, end of request i - 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """How long a shard computes for one query: a fixed part, an exponential part, and now and then a pause."""

    fixed: float  # seconds
    random: float = 0.0  # seconds, mean of the exponential part
    straggler_share: float = 0.0  # of requests that are delayed: collection of garbage, a busy neighbour, a cold page
    straggler_seconds: float = 0.0  # mean of that delay, exponential

    def __post_init__(self) -> None:
        if min(self.fixed, self.random, self.straggler_seconds) < 0 or not 0 <= self.straggler_share <= 1:
            raise ConfigError("service times cannot be negative, and the share of stragglers is from 0 to 1")

    @property
    def mean(self) -> float:
        return self.fixed + self.random + self.straggler_share * self.straggler_seconds

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        times = np.full(shape, self.fixed)
        if self.random:
            times += rng.exponential(self.random, shape)
        if self.straggler_share and self.straggler_seconds:
            times += (rng.random(shape) < self.straggler_share) * rng.exponential(self.straggler_seconds, shape)
        return times


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterModel:
    """A cluster as the simulation sees it."""

    n_shards: int
    n_replicas: int
    qps: float
    service: ServiceTime
    servers: int = 1  # requests that a replica answers at the same time: its cores
    network: float = 0.0  # seconds for a round trip between the coordinator and a shard
    coordinator: float = 0.0  # seconds of the coordinator: encoding the query, merging
    hedge_after: float = math.inf  # seconds after which a request is sent to another replica as well
    failed_share: float = 0.0  # of the time that a replica is down; the others of its shard then answer
    deadline: float = math.inf  # seconds after which a query is answered without the shards that are missing

    def __post_init__(self) -> None:
        if min(self.n_shards, self.n_replicas, self.servers) < 1 or self.qps <= 0 or not 0 <= self.failed_share < 1:
            raise ConfigError(
                "a cluster has at least one shard, replica and core, some queries a second, and replicas that are not "
                "always down"
            )

    @property
    def utilization(self) -> float:
        """The share of the time that cores are busy, without hedged requests; from 1 on queues grow for ever."""
        working = self.n_replicas * (1 - self.failed_share)
        return self.qps * self.service.mean / (working * self.servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLatency:
    """What the simulation gives. Seconds."""

    latencies: Floats  # of each query, ascending
    hedged_share: float  # of requests
    partial_share: float  # of queries that lack a shard at their deadline, or whose shard had no replica
    waiting: float  # mean seconds that a request waits in a queue

    def percentile(self, share: float) -> float:
        return float(np.quantile(self.latencies, share))


def simulate(model: ClusterModel, *, n_queries: int = 20_000, warm_up: float = 0.1, seed: int = 0) -> SimulatedLatency:
    """Runs the model. The first `warm_up` of the queries find emptier queues than later ones, and are not counted.

    Shards are alike and independent given the arrivals, so they are simulated one after the other.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / model.qps, n_queries))
    slowest = np.zeros(n_queries)
    is_partial = np.zeros(n_queries, bool)
    n_hedged, waited = 0, 0.0
    for _ in range(model.n_shards):
        done, hedged, waits, has_none = _one_shard(model, arrivals, rng)
        slowest = np.maximum(slowest, done - arrivals)
        is_partial |= has_none
        n_hedged += hedged
        waited += float(waits.sum())
    is_partial |= slowest > model.deadline
    latencies = model.coordinator + model.network + np.minimum(slowest, model.deadline)
    counted = slice(int(warm_up * n_queries), None)
    n_requests = n_queries * model.n_shards
    return SimulatedLatency(
        latencies=np.sort(latencies[counted]),
        hedged_share=n_hedged / n_requests,
        partial_share=float(is_partial[counted].mean()),
        waiting=waited / n_requests,
    )


def _one_shard(
    model: ClusterModel, arrivals: Floats, rng: np.random.Generator
) -> tuple[Floats, int, Floats, NDArray[np.bool_]]:
    """When the shard has answered each query, how many requests were hedged, how long each waited, and which queries
    found no replica."""
    n_queries, n_replicas = len(arrivals), model.n_replicas
    first_times, second_times = model.service.sample(rng, (2, n_queries)).tolist()
    # As Ray Serve does, of two replicas drawn at random the one with the shorter queue is asked.
    drawn = rng.random((n_queries, n_replicas)).argsort(axis=1).tolist()
    down = (rng.random((n_queries, n_replicas)) < model.failed_share).tolist() if model.failed_share else None
    free = [[0.0] * model.servers for _ in range(n_replicas)]  # when each core of each replica is free
    done, waits, has_none = np.zeros(n_queries), np.zeros(n_queries), np.zeros(n_queries, bool)
    n_hedged = 0
    for number, now in enumerate(arrivals.tolist()):
        up = drawn[number] if down is None else [one for one in drawn[number] if not down[number][one]]
        if not up:
            has_none[number], done[number] = True, now
            continue
        first = min(up[:2], key=lambda one: min(free[one]))
        end, waits[number] = _serve(free[first], now, first_times[number])
        if end - now > model.hedge_after and len(up) > 1:
            n_hedged += 1
            second = min((one for one in up if one != first), key=lambda one: min(free[one]))
            end = min(end, _serve(free[second], now + model.hedge_after, second_times[number])[0])
        done[number] = end
    return done, n_hedged, waits, has_none


def _serve(cores: list[float], now: float, seconds: float) -> tuple[float, float]:
    """Serves one request on the core of a replica that is free first: when it is done, and how long it waited."""
    free = min(cores)
    begin = max(now, free)
    cores[cores.index(free)] = begin + seconds
    return begin + seconds, begin - now
