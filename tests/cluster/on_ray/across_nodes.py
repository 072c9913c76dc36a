"""The program of the driver in test_network_cut.py: it serves two collections on nodes in two network namespaces, cuts
the link between them, waits until Ray has moved what was lost, and brings the link back. Prints one JSON object.

It runs in the namespace of the first node. Of collection "one" each shard has one replica, so that a cut leaves shards
without an answer until Ray restarts them; of collection "two" each shard has a replica on each node.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from cluster.collections import make_encoder
from plait.cluster import runtime as runtime_module
from plait.cluster.ray_runtime import import_ray
from plait.cluster.ray_serving import Replicas
from plait.cluster.runtime import ClusterRuntime
from plait.cluster.sharded_index import open_cluster
from plait.encode.load import LazyEncoder
from plait.serve.app import create_app
from plait.serve.config import ServeConfig

QUERIES = ["balor bemant givex", "kust kovex fimant", "gulor gast dalor"]
K = 25
TIMEOUT = 8.0  # seconds of a round of requests
PAUSE = 0.2  # seconds between two requests
STEADY_SECONDS = 6.0  # without a partial answer: the failover is over
MAX_SECONDS = 500.0  # of waiting for Ray


class GivenEncoder(LazyEncoder):
    """The encoder of the tests, which has no files."""

    def __init__(self, model: Any, given: Any, **options: Any) -> None:
        super().__init__(model, make_encoder() if given is None else given, **options)


@dataclass
class Asked:
    """One answer."""

    at: float
    seconds: float
    status: int
    is_partial: bool
    is_right: bool  # if it is not partial: the hits of the whole collection; else some of them, with their scores


@dataclass
class Asking:
    """Asks a collection all the time, in a thread."""

    name: str
    client: TestClient
    whole: dict[str, dict[str, float]]  # the score of every document
    best: dict[str, list[str]]
    answers: list[Asked] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            query, number = QUERIES[number % len(QUERIES)], number + 1
            begin = time.monotonic()
            answer = self.client.post(f"/v1/indexes/{self.name}/search", json={"query": query, "k": K, "mode": "dense"})
            now, body = time.monotonic(), answer.json()
            is_partial = any("partial" in warning for warning in body.get("warnings", ()))
            self.answers.append(
                Asked(now, now - begin, answer.status_code, is_partial, self._is_right(query, body, is_partial))
            )
            time.sleep(PAUSE)

    def _is_right(self, query: str, body: dict[str, Any], is_partial: bool) -> bool:
        hits = [(hit["id"], hit["score"]) for hit in body.get("hits", ())]
        if any(abs(self.whole[query][id] - score) > 1e-5 for id, score in hits):
            return False
        return is_partial or "hits" not in body or [id for id, _ in hits] == self.best[query]

    def is_steady(self, since: float, seconds: float) -> bool:
        """Whether no answer of the last seconds was partial or failed."""
        now = time.monotonic()
        last = [one for one in self.answers if one.at > max(since, now - seconds)]
        begin = now - seconds > since
        return begin and len(last) >= 3 and all(one.status == 200 and not one.is_partial for one in last)

    def summary(self, begin: float, end: float) -> dict[str, Any]:
        of_time = [one for one in self.answers if begin <= one.at < end]
        disturbed = [one.at - begin for one in of_time if one.is_partial or one.status != 200]
        return {
            "answers": len(of_time),
            "partial": sum(one.is_partial for one in of_time),
            "statuses": sorted({one.status for one in of_time}),
            "wrong": sum(not one.is_right for one in of_time),
            "disturbed_until": max(disturbed, default=0.0),
            "slowest": max((one.seconds for one in of_time), default=0.0),
        }


def wait_until(what: str, condition: Any) -> None:
    end = time.monotonic() + MAX_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {MAX_SECONDS:.0f} s until {what}")
        time.sleep(0.5)


def alive_nodes(ray: Any) -> int:
    return sum(bool(node["Alive"]) for node in ray.nodes())


def replicas_running(name: str) -> int:
    from ray import serve

    application = serve.status().applications[f"plait-{name}-1"]
    return sum(one.replica_states.get("RUNNING", 0) for one in application.deployments.values())


def link(interface: str, namespace: str, state: str) -> None:
    subprocess.run(["ip", "-n", namespace, "link", "set", interface, state], check=True)


def main(folder: Path, address: str, namespace: str, interface: str) -> None:
    """`interface` in `namespace` is the second node's end of the link. When the link is back, the line "restart" asks
    the test to start a node there again: Ray ends a node that it had given up."""
    setattr(runtime_module, "LazyEncoder", GivenEncoder)  # noqa: B010
    ray = import_ray()
    ray.init(address=address, log_to_driver=False, logging_level="error")
    wait_until("both nodes are there", lambda: alive_nodes(ray) == 2)
    with open_cluster(folder, encoder=make_encoder()) as local:
        hits = {query: local.search(query, 10_000, mode="dense") for query in QUERIES}
    whole = {query: {hit.id: hit.score for hit in of_query} for query, of_query in hits.items()}
    best = {query: [hit.id for hit in of_query[:K]] for query, of_query in hits.items()}
    config, asking = ServeConfig(mcp=False, page=False), list[Asking]()
    with ExitStack() as stack:
        for name, n_replicas in (("one", 1), ("two", 2)):
            replicas = Replicas(n_replicas=n_replicas, cpus=0.05, timeout=TIMEOUT)
            runtime = ClusterRuntime(config, folder, name, replicas=replicas)
            client = TestClient(create_app(config, runtime), base_url="http://127.0.0.1:8765")
            asking.append(Asking(name, stack.enter_context(client), whole, best))
        threads = [threading.Thread(target=one.run) for one in asking]
        for thread in threads:
            thread.start()
        try:
            begin = time.monotonic()
            wait_until("all answers are whole", lambda: all(one.is_steady(begin, 3.0) for one in asking))
            cut = time.monotonic()
            link(interface, namespace, "down")
            wait_until("Ray gives the node up", lambda: alive_nodes(ray) == 1)
            given_up = time.monotonic()
            wait_until("answers are whole again", lambda: all(one.is_steady(cut, STEADY_SECONDS) for one in asking))
            back = time.monotonic()
            link(interface, namespace, "up")
            print("restart", flush=True)
            wait_until("the node is there again", lambda: alive_nodes(ray) == 2)
            n_shards = runtime.index.searcher._fan_out.n_shards
            wait_until("every shard has two replicas", lambda: replicas_running("two") == 2 * n_shards)
            healed = time.monotonic()
            wait_until("all answers are whole", lambda: all(one.is_steady(healed, 3.0) for one in asking))
        finally:
            for one in asking:
                one.is_over.set()
            for thread in threads:
                thread.join()
        end = time.monotonic()
        report: dict[str, Any] = {"given_up_after": given_up - cut, "replicas_after": healed - back}
        for one in asking:
            report[one.name] = {
                "before": one.summary(begin, cut),
                "cut": one.summary(cut, back),
                "back": one.summary(back, end),
                "after": one.summary(healed, end),
            }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
