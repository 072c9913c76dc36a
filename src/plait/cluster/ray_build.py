"""Building a collection on Ray: Ray Data encodes in a pool of actors, one task fits the codec, one task for each shard
builds it. The steps are those of `plait.cluster.build`; a node that is lost repeats only what it had not finished."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plait import errors
from plait.cluster import build
from plait.cluster.build import BuildConfig, BuildReport, check_target
from plait.cluster.ray_runtime import connect, own_error
from plait.cluster.source_parts import PART_BYTES, read_part, source_parts
from plait.cluster.spool import BlockSummary
from plait.encode.load import LazyEncoder
from plait.encode.protocol import Encoder
from plait.errors import PlaitError, SourceError, StoreError
from plait.readers.sources import Sources

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How the work is spread."""

    n_encoders: int = 2  # actors that encode
    cpus: float = 1.0  # of each encoder and of each task that builds a shard
    gpus: float = 0.0  # of each encoder
    device: str | None = None  # of the model: "cpu" or "cuda"


class _EncodeActor:
    """Reads and encodes parts of the source."""

    def __init__(self, folder: str, config: BuildConfig, model: str | None, workers: Workers, options: bytes) -> None:
        self._folder, self._config, self._options = Path(folder), config, pickle.loads(options)
        threads = max(int(workers.cpus), 1)
        source = LazyEncoder(model, None, precision=None, n_threads=threads, device=workers.device)
        self._encoder: Encoder = source.get()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        numbers, answers = [], []
        for number, part in zip(batch["number"].tolist(), batch["part"].tolist(), strict=True):
            numbers.append(number)
            try:
                answers.append(json.dumps(self._encoded(part)))
            except PlaitError as error:  # as an answer: Ray Data would wrap it in errors of its own
                answers.append(json.dumps({"error": type(error).__name__, "message": str(error)}))
        return {"number": numbers, "blocks": answers}

    def _encoded(self, part: bytes) -> list[dict[str, Any]]:
        summaries = []
        for block in build.blocks_of(read_part(pickle.loads(part), self._options)):
            summary, is_known = build.encode_block(self._folder, self._config, self._encoder, block)
            summaries.append({**asdict(summary), "is_known": is_known})
        return summaries


def build_on_ray(
    sources: Sources,
    folder: Path,
    config: BuildConfig,
    *,
    model: str | None,
    encoder: Encoder,
    address: str | None = None,
    workers: Workers | None = None,
    part_bytes: int = PART_BYTES,
    on_step: OnStep = lambda _: None,
) -> BuildReport:
    """Builds the collection at `folder`, which every node must see. `encoder` is that of `model`, in this process."""
    check_target(folder)
    folder = folder.absolute()
    ray = connect(address)
    workers = Workers() if workers is None else workers
    try:
        on_step("encoding")
        blocks, n_known = _encode(sources, folder, config, model, workers, part_bytes)
        on_step(f"{len(blocks)} blocks are encoded, {n_known} of them before; fitting the codec")
        codec_file = ray.get(_task(ray, build.fit_codebook, workers).remote(folder, config, blocks))
        on_step(f"building {config.n_shards} shards")
        task = _task(ray, build.build_shard, workers)
        building = [task.remote(folder, config, blocks, number, codec_file) for number in range(config.n_shards)]
        built = ray.get(building)
    except ray.exceptions.RayTaskError as error:
        raise _cause(error) from error
    on_step("measuring scores and publishing")
    manifest = build.finish(folder, config, [record for record, _ in built], codec_file, encoder)
    return BuildReport(
        manifest=manifest,
        n_blocks=len(blocks),
        n_blocks_reused=n_known,
        n_shards_reused=sum(is_known for _, is_known in built),
    )


def _encode(
    sources: Sources, folder: Path, config: BuildConfig, model: str | None, workers: Workers, part_bytes: int
) -> tuple[list[BlockSummary], int]:
    """The blocks of the source, in its order, and how many were there already."""
    import ray.data as ray_data

    parts = [
        {"number": n, "part": pickle.dumps(part)} for n, part in enumerate(source_parts(sources, part_bytes=part_bytes))
    ]
    if not parts:
        raise SourceError("the source has no files that can be read; nothing was built")
    ray_data.DataContext.get_current().enable_progress_bars = False
    encoded = ray_data.from_items(parts, override_num_blocks=len(parts)).map_batches(
        _EncodeActor,
        batch_size=1,
        fn_constructor_args=(str(folder), config, model, workers, pickle.dumps(sources.options)),
        compute=ray_data.ActorPoolStrategy(size=min(workers.n_encoders, len(parts))),
        num_cpus=workers.cpus,
        num_gpus=workers.gpus or None,
    )
    answers: dict[int, Any] = {}
    for row in encoded.iter_rows():
        answer = answers[int(row["number"])] = json.loads(row["blocks"])
        if isinstance(answer, dict):
            raise getattr(errors, answer["error"], StoreError)(answer["message"])
    summaries = [summary for number in sorted(answers) for summary in answers[number]]
    n_known = sum(summary.pop("is_known") for summary in summaries)
    blocks = [
        BlockSummary(**{**one, "n_vectors": {int(shard): count for shard, count in one["n_vectors"].items()}})
        for one in summaries
    ]
    if not blocks:
        raise SourceError("the source has no documents; nothing was built")
    return blocks, n_known


def _task(ray: Any, function: Callable[..., Any], workers: Workers) -> Any:
    """A task that is repeated when its node is lost, and not when it raises."""
    return ray.remote(num_cpus=workers.cpus, max_retries=-1, retry_exceptions=False)(function)


def _cause(error: Any) -> PlaitError:
    if (cause := own_error(error)) is not None:
        return cause
    lines = str(error).strip().splitlines()
    return StoreError(f"a worker failed: {lines[-1] if lines else error!r}")
