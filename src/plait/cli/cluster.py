"""`plait cluster index`, `search`, `split`, `push`, `serve` and `plan`; `cluster_training.py` has the other verbs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.cluster_training import cluster_mine, cluster_train
from plait.cli.errors import NOTHING_FOUND, say
from plait.cli.file_options import IdField, TextField, TitleField
from plait.cli.options import (
    AsJson,
    ChunkEnd,
    ChunkLate,
    ChunkOverlap,
    ChunkSize,
    Language,
    Model,
    Params,
    Threads,
    Timeout,
    chunking_from,
)
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.cluster.build import BuildReport

DEFAULT_NAME = "collection"
Address = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="The Ray cluster to join, or auto; by default Ray starts on this machine."),
]
Collection = Annotated[
    Path, typer.Argument(metavar="COLLECTION", help="The folder of the collection.", show_default=False)
]


def cluster_index(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help="Files and folders that every node sees.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="The collection; a folder that every node sees.")],
    shards: Annotated[int, typer.Option(min=1, max=4096, help="Number of shards.")] = 4,
    address: Address = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that encode.")] = 2,
    cpus: Annotated[float, typer.Option(min=0.1, help="Processors of each of them.")] = 1.0,
    gpus: Annotated[float, typer.Option(min=0.0, help="GPUs of each of them.")] = 0.0,
    local: Annotated[bool, typer.Option("--local", help="Build in this process, without Ray.")] = False,
    bits: Annotated[int, typer.Option(help="Bits of a residual code: 1, 2, 4 or 8.")] = 2,
    model: Model = None,
    language: Language = None,
    chunk_size: ChunkSize = None,
    chunk_overlap: ChunkOverlap = None,
    chunk_by: ChunkEnd = None,
    chunk_late: ChunkLate = False,
    text_field: TextField = None,
    id_field: IdField = None,
    title_field: TitleField = None,
    threads: Threads = None,
) -> None:
    """Build a collection of shards on a Ray cluster.

    Documents are encoded by a pool of workers; one codebook is trained for all
    shards; the shards, each an ordinary index, are built in parallel; and a
    manifest is published at the end. Run the same command again after a crash:
    only what was not finished is repeated. Needs plait[cluster].

    \b
    Examples:
      plait cluster index corpus.jsonl --to big --shards 8 --workers 4
      plait cluster index /data/corpus --to /data/big --address auto
      plait cluster index corpus.jsonl --to big --shards 2 --local
    """
    from plait.cluster.build import BuildConfig, build_locally, check_target
    from plait.encode.load import LazyEncoder, available_cpus
    from plait.readers.given import ReadOptions
    from plait.readers.sources import SourceReport, Sources, read_sources

    if chunk_late:
        raise ConfigError("--chunk-late is not for collections of shards; leave it out")
    if not local:
        from plait.cluster.ray_runtime import import_ray

        import_ray()  # says how to install it, before anything else is done
    check_target(to)
    chunking = chunking_from(chunk_size, chunk_overlap, chunk_by, late=False)
    options = ReadOptions(text_field=text_field, id_field=id_field, title_field=title_field)
    given = Sources(sources, options)
    source = LazyEncoder(model, None, precision=None, n_threads=threads or available_cpus())
    config = BuildConfig.of(source, chunking=chunking, n_shards=shards, bits=bits, language=language)
    if local:
        documents = read_sources(given, on_error="stop", report=SourceReport())
        report = build_locally(documents, source.get(), to, config, n_threads=threads or available_cpus())
    else:
        from plait.cluster.ray_build import Workers, build_on_ray

        spread = Workers(n_encoders=workers, cpus=cpus, gpus=gpus, device="cuda" if gpus else None)
        report = build_on_ray(
            given, to, config, model=model, encoder=source.get(), address=address, workers=spread, on_step=say
        )
    _print_report(report, to)


def _print_report(report: BuildReport, to: Path) -> None:
    manifest = report.manifest
    print(
        f"{to}: {manifest.n_documents:,} documents and {manifest.n_passages:,} passages in {len(manifest.shards)} "
        f"shards, generation {manifest.generation}"
    )
    print(
        f"{report.n_blocks} blocks, {report.n_blocks_reused} of them encoded before; "
        f"{report.n_shards_reused} shards built before"
    )


def cluster_search(
    collection: Collection,
    query: Annotated[str, typer.Argument(help="What to search for.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of hits.")] = 10,
    mode: Annotated[
        str, typer.Option(help="hybrid, dense, sparse, multi, bm25 or another of plait's modes.")
    ] = "hybrid",
    param: Params = None,
    filter: Annotated[str | None, typer.Option(metavar="CONDITION", help="A condition on metadata.")] = None,
    model: Model = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Search a collection whose shards are on this machine.

    The hits and scores are those of one index of all documents.

    \b
    Examples:
      plait cluster search big "how are vectors combined"
      plait cluster search big "looms" --mode bm25 --filter "year >= 2020"
    """
    from plait.cluster.sharded_index import open_cluster
    from plait.search.modes import parse_params

    words = dict(_assignment(text) for text in param or ())
    with open_cluster(collection, model=model) as opened:
        hits = opened.search(
            query, k, mode=mode, params=parse_params(mode, words) if words else None, filter=filter, timeout=timeout
        )
    if as_json:
        print(json.dumps([{"id": hit.id, "score": hit.score, "title": hit.title, "text": hit.passage} for hit in hits]))
    for rank, hit in enumerate(hits if not as_json else (), 1):
        print(f"{rank:>3}  {hit.score:8.4f}  {hit.id}  {' '.join(hit.passage.split())[:100]}")
    if not hits:
        raise typer.Exit(NOTHING_FOUND)


def _assignment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"{text!r} is not a parameter; write NAME=VALUE")
    return name, value


def cluster_split(
    collection: Collection,
    shard: Annotated[int, typer.Argument(min=0, help="The number of the shard, from 0.", show_default=False)],
    threads: Threads = None,
) -> None:
    """Split a shard of a collection into two.

    Nothing is encoded again. Servers follow the new manifest by themselves;
    the folder of the old shard stays for them, and may be deleted later.

    \b
    Example:
      plait cluster split big 3
    """
    from plait.cluster.sharded_index import open_cluster

    with open_cluster(collection, n_threads=threads, read_only=False) as opened:
        manifest = opened.split(shard)
    sizes = ", ".join(f"{manifest.shards[number].n_documents:,}" for number in (shard, shard + 1))
    print(f"{collection}: {len(manifest.shards)} shards, generation {manifest.generation}; the new ones have {sizes}")


def cluster_push(
    collection: Collection,
    uri: Annotated[str, typer.Argument(help="The address, such as s3://bucket/big.", show_default=False)],
) -> None:
    """Copy a collection to an object store.

    Shards that are there already stay. The manifest goes last, so that a
    server at the address sees the old collection or the new one. The address is
    one of fsspec: s3://, gs://, abfs://, file:// and others, with their package.

    \b
    Example:
      plait cluster push big s3://bucket/big
    """
    from plait.cluster.remote import push

    n_copied = push(collection, uri)
    print(f"{n_copied} shards copied to {uri}")


def cluster_serve(
    collection: Annotated[
        str,
        typer.Argument(
            metavar="COLLECTION", help="A folder, or an address such as s3://bucket/big.", show_default=False
        ),
    ],
    name: Annotated[str, typer.Option(help="The name of the collection in addresses.")] = DEFAULT_NAME,
    address: Address = None,
    replicas: Annotated[int, typer.Option(min=1, help="Copies of each shard, on different nodes.")] = 2,
    cpus: Annotated[float, typer.Option(min=0.0, help="Processors of each copy.")] = 0.5,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds until shards are given up.")] = 10.0,
    hedge_after: Annotated[
        float | None, typer.Option(help="Seconds after which another copy is asked; by default as measured.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port.")] = 8765,
    keys: Annotated[Path | None, typer.Option(metavar="FILE", help="API keys, made by `plait keys`.")] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name of this server in Host headers; may be repeated.")
    ] = None,
    writable: Annotated[bool, typer.Option("--writable", help="Accept documents and deletions.")] = False,
    model: Model = None,
) -> None:
    """Serve a collection over HTTP, its shards on a Ray cluster.

    The API is that of plait serve. Ray restarts copies that are lost; until
    then the others answer. An answer that lacks a shard says so in `warnings`.
    A newly published manifest is followed without a failed request. Needs
    plait[cluster].

    \b
    Examples:
      plait cluster serve big --replicas 2 --address auto
      plait cluster serve big --port 9000 --timeout 2
    """
    from plait.cluster.ray_runtime import connect, import_ray

    import_ray()
    from plait.cluster.manifest import check_shards, read_manifest
    from plait.cluster.remote import cache_folder, is_remote, pull_manifest

    uri = collection if is_remote(collection) else None
    folder = Path(collection) if uri is None else cache_folder(uri)
    if uri is not None and writable:
        raise ConfigError("a collection of an object store is read-only; leave out --writable")
    if uri is None:
        manifest = read_manifest(folder)
        check_shards(folder, manifest)
    else:
        manifest = pull_manifest(uri, folder)
    try:
        import uvicorn

        from plait.serve.app import create_app
    except ImportError as error:
        raise ConfigError(f"plait cluster serve needs {error.name}; pip install 'plait[cluster]'") from None
    from plait.cluster.ray_serving import Replicas
    from plait.cluster.runtime import ClusterRuntime
    from plait.serve.config import ServeConfig

    config = ServeConfig(
        host=host, port=port, keys_file=keys, read_only=not writable, allowed_hosts=tuple(allowed_host or ())
    )
    config.check_exposure()
    connect(address)
    served = Replicas(n_replicas=replicas, cpus=cpus, timeout=timeout, hedge_after=hedge_after, uri=uri)
    runtime = ClusterRuntime(config, folder.absolute(), name, model=model, replicas=served, read_only=not writable)
    print(f"{name}: {manifest.n_documents:,} documents in {len(manifest.shards)} shards, {replicas} copies", flush=True)
    print(f"serving at {config.url}. Ctrl-C stops the server", flush=True)
    uvicorn.run(create_app(config, runtime), host=host, port=port, log_level="warning", access_log=False, ws="none")


def cluster_plan(
    documents: Annotated[float, typer.Option(help="Documents, such as 1e9.", show_default=False)],
    tokens: Annotated[float, typer.Option(help="Multi vectors of a document; 0: none.")] = 120,
    bits: Annotated[int, typer.Option(help="Bits of a residual code: 1, 2, 4 or 8.")] = 2,
    dim: Annotated[int, typer.Option(min=8, help="Dimensions of a multi vector.")] = 128,
    dense_dim: Annotated[int, typer.Option(min=0, help="Dimensions of the dense vector; 0: none.")] = 384,
    text_bytes: Annotated[float, typer.Option(min=0, help="Bytes of a document's text.")] = 600,
    replicas: Annotated[int, typer.Option(min=1, help="Copies of each shard.")] = 2,
    qps: Annotated[float, typer.Option(help="Queries a second.")] = 100,
    recall: Annotated[float, typer.Option(help="Of the best 10 by exhaustive search, 0.5 to 0.99.")] = 0.9,
    shards: Annotated[int | None, typer.Option(min=1, help="Number of shards; by default by their size.")] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Another rate or price, such as machine_price=2.5; may be repeated."),
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="Do not print what is assumed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan machines, memory, disk, cost and latency for a collection.

    Sizes follow the files of an index; latencies come from a simulation of
    queues, slow requests and failures. Everything that is assumed is printed,
    and --assume changes it.

    \b
    Examples:
      plait cluster plan --documents 1e9 --qps 500 --recall 0.95
      plait cluster plan --documents 1e8 --assume machine_price=2.5
    """
    from plait.cluster.capacity import Assumptions, Load, describe, plan_capacity

    names = Assumptions.__dataclass_fields__
    changes: dict[str, Any] = {}
    for text in assume or ():
        field, value = _assignment(text)
        if field not in names:
            raise ConfigError(f"there is no assumption {field!r}; choose one of {', '.join(names)}")
        try:
            changes[field] = int(float(value)) if field == "machine_cores" else float(value)
        except ValueError:
            raise ConfigError(f"{field} is {value!r}; it must be a number") from None
    load = Load(
        documents=documents,
        tokens=tokens,
        bits=bits,
        dim=dim,
        dense_dim=dense_dim,
        text_bytes=text_bytes,
        replicas=replicas,
        qps=qps,
        recall=recall,
    )
    plan = plan_capacity(load, Assumptions(**changes), n_shards=shards)
    if not as_json:
        print("\n".join(describe(plan, assumptions=not short)))
        return
    fields = {
        "load": asdict(plan.load),
        "assumptions": asdict(plan.assumptions),
        "bytes_by_part": plan.bytes_by_part,
        "bytes": plan.n_bytes,
        "disk_bytes": plan.disk_bytes,
        "memory_bytes": plan.memory_bytes,
        "shards": plan.n_shards,
        "machines": plan.n_machines,
        "limited_by": plan.limited_by,
        "dollars_per_hour": plan.dollars_per_hour,
        "dollars_per_million_queries": plan.dollars_per_million,
        "utilization": plan.utilization,
        **{f"p{share * 100:g}_ms": plan.latency.percentile(share) * 1e3 for share in (0.5, 0.95, 0.99)},
        "hedged_share": plan.latency.hedged_share,
        "partial_share": plan.latency.partial_share,
    }
    print(json.dumps(fields, indent=1))


CLUSTER: dict[str, Callable[..., None]] = {
    "index": cluster_index,
    "search": cluster_search,
    "split": cluster_split,
    "push": cluster_push,
    "serve": cluster_serve,
    "train": cluster_train,
    "mine": cluster_mine,
    "plan": cluster_plan,
}
