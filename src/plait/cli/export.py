"""`plait export`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import say
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.convert.formats.export import ExportedCheckpoint
    from plait.train.export.export import ExportConfig, Exported

REQUIRED_PACKAGES = ("torch", "transformers", "safetensors", "onnx")


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a training run.", show_default=False)],
    to: Annotated[Path, typer.Option(metavar="MODEL", help="The folder to write.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="plait, or that of another library: sentence-transformers, pylate, stanford, flagembedding.",
        ),
    ] = "plait",
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="Leave out dense, sparse or multi, which FORMAT cannot hold; may be repeated."
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="int8, fp32, or both.")] = "int8",
    weights: Annotated[
        str, typer.Option(help="best or final; by default the best, or the final if none was measured.")
    ] = "",
    name: Annotated[str, typer.Option(help="The name of the model; by default that of the recipe.")] = "",
    licence: Annotated[str, typer.Option(help="The licence of the weights.")] = "not stated",
    attribution: Annotated[str, typer.Option(help="The attribution; by default the backbone.")] = "",
    language: Annotated[list[str] | None, typer.Option(help="A language code such as en; may be repeated.")] = None,
    data: Annotated[
        str, typer.Option(metavar="FOLDER", help="A BEIR folder: compare nDCG@10 of int8 and fp32 on it.")
    ] = "",
    split: Annotated[str, typer.Option(help="Which judgements of FOLDER to use.")] = "test",
    mcls: Annotated[
        int | None,
        typer.Option(min=1, help="Insert a [CLS] after every N tokens of a document; dense is their mean."),
    ] = None,
    exclude_sparse_from_hybrid: Annotated[
        bool, typer.Option("--exclude-sparse-from-hybrid", help="Exclude sparse vectors from hybrid search by default.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace MODEL if it exists.")] = False,
    length: Annotated[int, typer.Option(min=8, help="Tokens of a pair, for a reranker from transformers.")] = 256,
    query_length: Annotated[int, typer.Option(min=1, help="Tokens reserved for its query.")] = 64,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to use; all cores by default.")] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Run torch on cpu or cuda; by default on the GPU if torch has one, else on the CPU.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Export a trained model to a model folder.

    The graph is compared with torch on real text, and int8 with fp32; MODEL is written only if they agree. It holds the
    graph, the tokenizer, plait.json and a model page. Needs pip install 'plait[train]'; searching with MODEL does not.
    RUN may also be a run of a cross-encoder, or a reranker from transformers: a sequence classifier with one output.
    With --format, MODEL is a checkpoint that another library loads; it is read back and compared with torch as well.

    \b
    Examples:
      plait export runs/tiny --to tiny-model
      plait export runs/cross-cls --to my-cross-encoder
      plait export runs/m3 --to m3 --precision both --data scifact
      plait export runs/colbert --to colbert --format pylate
      plait export runs/m3 --to m3-st --format sentence-transformers --drop sparse
      plait index documents.jsonl --to index --model m3
    """
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"export needs {', '.join(missing)}; install with: pip install 'plait[train]'")
    from plait.train.cross.export import cross_source
    from plait.train.devices import check_device
    from plait.train.export.export import ExportConfig, export_run

    check_device(device)
    if form != "plait":
        graph_options = {"--data": data, "--mcls": mcls, "--exclude-sparse-from-hybrid": exclude_sparse_from_hybrid}
        _refuse_graph_options(form, {**graph_options, "--precision": "" if precision == "int8" else precision})
        _export_checkpoint(run, to, form, weights, tuple(drop or ()), licence, force=force, device=device)
        return
    if drop:
        raise ConfigError("--drop is for formats of other libraries; a model folder of plait holds every kind")
    config = ExportConfig(
        precision=precision,
        weights=weights,
        name=name,
        licence=licence,
        attribution=attribution,
        mcls=mcls,
        languages=tuple(language or ()),
        data=data,
        split=split,
        exclude_sparse_from_hybrid=exclude_sparse_from_hybrid,
        force=force,
        n_threads=threads,
        device=device,
    )
    pairs = cross_source(run, weights)
    if pairs is None:
        _print_exported(export_run(run, to, config, on_stage=say))
    else:
        _export_cross(pairs, to, config, length, query_length)


def _refuse_graph_options(form: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise ConfigError(f"{name} is for the graphs of plait; the format {form} has the weights as they are")


def _export_checkpoint(
    run: Path,
    to: Path,
    form: str,
    weights: str,
    drop: tuple[str, ...],
    licence: str,
    *,
    force: bool,
    device: str | None,
) -> None:
    from plait.convert.formats.export import export_checkpoint

    stated = "" if licence == "not stated" else licence
    made: ExportedCheckpoint = export_checkpoint(
        run, to, form, weights=weights, drop=drop, licence=stated, force=force, device=device, on_stage=say
    )
    print(f"{made.folder}: format {made.form}, read back as {made.layout}")
    for kind, difference in made.differences.items():
        print(f"  {kind}: {difference:.1e} off torch at most")
    for note in made.notes:
        print(f"  {note}")


def _export_cross(source: Path, to: Path, config: ExportConfig, length: int, query_length: int) -> None:
    """Exports a cross-encoder; torch writes the graph, so there are fewer checks."""
    from plait.train.cross.export import export_cross

    if config.data:
        raise ConfigError(
            f"{source} is a cross-encoder; measure it with: plait eval INDEX --rerank-model {to} --data ..."
        )
    made = export_cross(
        source,
        to,
        name=config.name or None,
        length=length,
        query_length=query_length,
        int8=config.precision != "fp32",
        fp32=config.precision != "int8",
        licence=config.licence,
        attribution=config.attribution,
        languages=config.languages,
        force=config.force,
    )
    differences = ", ".join(f"{kind} differs by {value:.2g}" for kind, value in made.differences.items())
    print(f"{to}: {made.card.fingerprint}; {differences} of the spread of its scores")


def _print_exported(exported: Exported) -> None:
    card, checks = exported.card, exported.checks
    sizes = ", ".join(f"{precision} {record.bytes / 1e6:.1f} MB" for precision, record in card.precisions.items())
    print(f"{exported.folder}: {card.fingerprint}, {sizes}")
    for kind, difference in checks.fp32.embeddings.items():
        rounded = f"; int8 to fp32, mean cosine {checks.int8.embeddings[kind].cosine:.4f}" if checks.int8 else ""
        print(f"  {kind}: {difference.largest:.1e} off torch at most{rounded}")
    if checks.ranking is not None:
        for precision, values in checks.ranking.values.items():
            shown = "  ".join(f"{kind} {value:.4f}" for kind, value in values.items())
            print(f"  nDCG@10 on {checks.ranking.data}, {precision}: {shown}")
