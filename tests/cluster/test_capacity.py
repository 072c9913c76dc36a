"""The simulation equals closed forms where there are any; the planner's sizes are those of real files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from plait.cluster.capacity import Assumptions, Load, describe, plan_capacity, recall_factor, size_of, vector_bytes
from plait.cluster.simulation import ClusterModel, ServiceTime, simulate
from plait.errors import ConfigError

ONE = ClusterModel(n_shards=1, n_replicas=1, qps=50.0, service=ServiceTime(fixed=0.01))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_for_a_fixed_service_time_is_that_of_m_d_1(load: float) -> None:
    seconds = load / ONE.qps
    model = replace(ONE, service=ServiceTime(fixed=seconds))
    assert model.utilization == pytest.approx(load)
    wanted = load * seconds / (2 * (1 - load))  # Pollaczek and Khinchine
    assert simulate(model, n_queries=60_000).waiting == pytest.approx(wanted, rel=0.08)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_waiting_for_a_random_service_time_is_that_of_m_m_1(load: float) -> None:
    seconds = load / ONE.qps
    model = replace(ONE, service=ServiceTime(fixed=0.0, random=seconds))
    result = simulate(model, n_queries=60_000)
    assert result.waiting == pytest.approx(load * seconds / (1 - load), rel=0.08)
    # The time in an M/M/1 system is exponential, with mean seconds / (1 - load).
    assert result.percentile(0.99) == pytest.approx(math.log(100) * seconds / (1 - load), rel=0.1)


def test_two_cores_wait_as_m_m_2() -> None:
    load, seconds = 0.6, 0.024  # of each of two cores
    model = replace(ONE, servers=2, service=ServiceTime(fixed=0.0, random=seconds))
    assert model.utilization == pytest.approx(load)
    wanted = seconds * load**2 / (1 - load**2)  # Erlang's C formula for two servers
    assert simulate(model, n_queries=60_000).waiting == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize("n_shards", [1, 4, 16])
def test_the_slowest_of_n_idle_shards_is_the_maximum_of_n_exponentials(n_shards: int) -> None:
    model = ClusterModel(n_shards=n_shards, n_replicas=1, qps=0.01, service=ServiceTime(fixed=0.0, random=1.0))
    latencies = simulate(model, n_queries=8000).latencies
    assert latencies.mean() == pytest.approx(sum(1 / number for number in range(1, n_shards + 1)), rel=0.05)
    median = -math.log(1 - 0.5 ** (1 / n_shards))
    assert np.median(latencies) == pytest.approx(median, rel=0.06)


def test_hedging_cuts_the_tail_and_costs_few_requests() -> None:
    service = ServiceTime(fixed=0.01, straggler_share=0.02, straggler_seconds=0.5)
    model = ClusterModel(n_shards=10, n_replicas=2, qps=5.0, service=service, servers=4)
    plain, hedged = simulate(model, n_queries=4000), simulate(replace(model, hedge_after=0.03), n_queries=4000)
    assert hedged.percentile(0.95) < 0.3 * plain.percentile(0.95)
    assert 0.01 < hedged.hedged_share < 0.03
    assert plain.hedged_share == 0


def test_answers_are_partial_as_often_as_all_replicas_of_a_shard_are_down() -> None:
    model = ClusterModel(n_shards=3, n_replicas=2, qps=1.0, service=ServiceTime(fixed=0.001), failed_share=0.1)
    wanted = 1 - (1 - 0.1**2) ** 3
    assert simulate(model, n_queries=20_000).partial_share == pytest.approx(wanted, rel=0.15)


def test_a_deadline_bounds_the_latency_and_flags_answers() -> None:
    model = replace(ONE, qps=0.01, service=ServiceTime(fixed=0.0, random=1.0), deadline=2.0)
    result = simulate(model, n_queries=8000)
    assert result.percentile(1.0) == 2.0
    assert result.partial_share == pytest.approx(math.exp(-2), rel=0.1)


def test_network_and_coordinator_are_added_to_every_query() -> None:
    model = replace(ONE, qps=0.01, network=0.5, coordinator=0.25)
    assert simulate(model, n_queries=100).latencies == pytest.approx(np.full(90, 0.76))


def test_sizes_are_those_of_a_compacted_index(tmp_path: Path) -> None:
    rng, n_documents, tokens = np.random.default_rng(0), 300, 40
    items = [rng.standard_normal((tokens, 128)).astype(np.float32) for _ in range(n_documents)]
    with plait.open(tmp_path / "ix", create=True, spec=plait.EmbeddingSpec(multi=128)) as index:
        documents = [{"id": str(number), "text": "x"} for number in range(n_documents)]
        index.add_embeddings(documents, plait.Embeddings(multi=plait.MultiVectors.from_items(items)))
        report = index.compact(bits=2)
    assert report.n_centroids is not None
    coded = next((tmp_path / "ix" / "segments").glob("*/residual.plait")).stat().st_size
    wanted = n_documents * tokens * vector_bytes(128, 2, report.n_centroids) + report.n_centroids * 128
    assert coded == pytest.approx(wanted, rel=0.08)


def test_a_plan_grows_with_its_load() -> None:
    load = Load(documents=1e8, qps=100)
    plan = plan_capacity(load, n_queries=300)
    more = plan_capacity(replace(load, documents=1e9), n_queries=300)
    assert (plan.n_shards, more.n_shards) == (5, 50)
    assert more.n_bytes == pytest.approx(10 * plan.n_bytes, rel=0.05)
    assert more.n_machines > 5 * plan.n_machines
    assert plan_capacity(replace(load, bits=4), n_queries=300).n_bytes > 1.3 * plan.n_bytes
    assert plan_capacity(replace(load, recall=0.95), n_queries=300).shard_ms > plan.shard_ms
    dear = plan_capacity(load, Assumptions(machine_price=3.2), n_queries=300)
    assert dear.dollars_per_million == pytest.approx(2 * plan.dollars_per_million)
    assert plan.dollars_per_million == pytest.approx(plan.n_machines * 1.6 / 0.36, rel=1e-6)


def test_the_machines_have_what_the_plan_needs() -> None:
    for load in (Load(documents=1e9, qps=1), Load(documents=1e6, qps=5000), Load(documents=1e7, tokens=0, qps=10)):
        plan = plan_capacity(load, n_queries=200)
        given = plan.assumptions
        assert plan.memory_bytes <= plan.n_machines * given.memory_share * given.machine_memory
        assert plan.disk_bytes <= plan.n_machines * given.disk_share * given.machine_disk
        assert plan.n_machines >= load.replicas
        assert plan.utilization < 1


def test_every_assumption_is_printed() -> None:
    text = "\n".join(describe(plan_capacity(Load(documents=1e6), n_queries=200)))
    for name in Assumptions.__dataclass_fields__:
        assert name in text
    assert "p50, p95, p99" in text
    assert "dollars per million" in text


def test_wrong_loads_are_errors() -> None:
    wrong_loads: list[dict[str, Any]] = [{"documents": 0}, {"qps": 0}, {"bits": 3}, {"recall": 1.0}, {"replicas": 0}]
    for wrong in wrong_loads:
        with pytest.raises(ConfigError):
            Load(**{"documents": 10, **wrong})
    with pytest.raises(ConfigError, match="at least one shard"):
        replace(ONE, n_shards=0)
    assert recall_factor(0.9) == pytest.approx(1.0)
    assert "multi vectors" not in size_of(Load(documents=10, tokens=0), 1)
