"""Shards as Ray Serve deployments: each has replicas, on different nodes if there are enough, and Ray restarts those
that are lost. `ServedShards` deploys the shards of a manifest and asks them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.cluster.hedging import HedgedFanOut
from plait.cluster.manifest import Manifest
from plait.cluster.ray_runtime import import_ray
from plait.cluster.remote import local_copy, pull_shard
from plait.cluster.shard import LocalShard
from plait.errors import EncoderMismatchError, PlaitError

MAX_THREADS = 64  # requests that wait for an answer
READY_SECONDS = 300.0  # for replicas to open their shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How shards are served."""

    n_replicas: int = 2
    cpus: float = 0.5  # of each replica
    max_ongoing: int = 16  # requests of a replica at a time
    timeout: float = 10.0  # seconds for a round of requests
    hedge_after: float | None = None  # seconds; None: by the durations so far
    uri: str | None = None  # where the collection comes from, if each node copies its shards from an object store


class ShardReplica:
    """One replica of a shard."""

    def __init__(self, path: str, fingerprint: str, shard_uri: str, uri: str | None) -> None:
        """With `uri`, the shard is copied from there to `path` first."""
        if uri is not None:
            pull_shard(uri, shard_uri, Path(path))
        self._shard = LocalShard(local_copy(Path(path)))
        if self._shard.fingerprint != fingerprint:
            raise EncoderMismatchError(
                f"shard {path} was built with encoder {self._shard.fingerprint!r}, and the collection with "
                f"{fingerprint!r}; build the collection again"
            )

    def __call__(self, method: str, arguments: Sequence[Any]) -> Any:
        if method not in ASKED:
            raise AttributeError(method)
        try:
            return getattr(self._shard, method)(*arguments)
        except PlaitError as error:
            return Failed(error)


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of plait as an answer: Ray would wrap it."""

    error: PlaitError


ASKED = (
    "facts",
    "refresh",
    "spelling",
    "survey",
    "retrieve",
    "rescore",
    "candidates",
    "score_candidates",
    "method_sizes",
    "method_steps",
    "fetch",
    "stored_query",
    "facets",
    "get",
    "count",
)


class _Root:
    """Ray Serve wants one deployment that knows the others."""

    def __init__(self, *shards: Any) -> None:
        self._shards = shards


class ServedShards:
    """The shards of one generation of a collection, deployed on the Ray cluster that this process has joined."""

    def __init__(self, folder: Path, manifest: Manifest, name: str, replicas: Replicas) -> None:
        ray = import_ray()
        from ray import serve

        self.manifest, self._serve = manifest, serve
        self.app_name = f"plait-{name}-{manifest.generation}"
        serve.start(proxy_location="Disabled")
        n_nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        options: dict[str, Any] = {
            "num_replicas": replicas.n_replicas,
            "ray_actor_options": {"num_cpus": replicas.cpus},
            "max_ongoing_requests": replicas.max_ongoing,
            "health_check_period_s": 2,
            "health_check_timeout_s": 5,
        }
        if n_nodes >= replicas.n_replicas > 1:
            options["max_replicas_per_node"] = 1
        bound = [
            serve.deployment(ShardReplica)
            .options(name=f"shard-{number}", **options)
            .bind(str(manifest.shard_path(folder, number).absolute()), manifest.fingerprint, shard.uri, replicas.uri)
            for number, shard in enumerate(manifest.shards)
        ]
        root = serve.deployment(_Root).options(name="root", ray_actor_options={"num_cpus": 0}).bind(*bound)
        serve.run(root, name=self.app_name, route_prefix=None)
        self._handles = [
            serve.get_deployment_handle(f"shard-{number}", app_name=self.app_name)
            for number in range(len(manifest.shards))
        ]
        self._pool = ThreadPoolExecutor(MAX_THREADS, "plait-shards")
        lost = (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError, TimeoutError, ConnectionError)
        self.fan_out = HedgedFanOut(
            len(self._handles),
            self._submit,
            is_lost=lambda error: (
                isinstance(error, lost) or type(error).__name__.endswith(("UnavailableError", "DiedError"))
            ),
            timeout=replicas.timeout,
            hedge_after=replicas.hedge_after,
        )
        self._timeout = replicas.timeout

    def _submit(self, shard: int, method: str, arguments: Sequence[Any]) -> Future[Any]:
        response = self._handles[shard].remote(method, arguments)
        return self._pool.submit(self._result, response)

    def _result(self, response: Any) -> Any:
        answer = response.result(timeout_s=self._timeout)
        if isinstance(answer, Failed):
            raise answer.error
        return answer

    def close(self) -> None:
        """Ends the replicas."""
        self._serve.delete(self.app_name, _blocking=False)
        self._pool.shutdown(wait=False)
