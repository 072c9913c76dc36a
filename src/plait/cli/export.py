"""`plait export`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import say
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.train.export.export import ExportConfig, Exported

REQUIRED_PACKAGES = ("torch", "transformers", "safetensors", "onnx")


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a training run.", show_default=False)],
    to: Annotated[Path, typer.Option(metavar="MODEL", help="The model folder to write.")],
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
) -> None:
    """Export a trained model to a model folder.

    The graph is compared with torch on real text, and int8 with fp32; MODEL is written only if they agree. It holds the
    graph, the tokenizer, plait.json and a model page. Needs pip install 'plait[train]'; searching with MODEL does not.
    RUN may also be a run of a cross-encoder, or a reranker from transformers: a sequence classifier with one output.

    \b
    Examples:
      plait export runs/tiny --to tiny-model
      plait export runs/cross-cls --to my-cross-encoder
      plait export runs/m3 --to m3 --precision both --data scifact
      plait index documents.jsonl --to index --model m3
    """
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"export needs {', '.join(missing)}; install with: pip install 'plait[train]'")
    from plait.train.cross.export import cross_source
    from plait.train.export.export import ExportConfig, export_run

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
    )
    pairs = cross_source(run, weights)
    if pairs is None:
        _print_exported(export_run(run, to, config, on_stage=say))
    else:
        _export_cross(pairs, to, config, length, query_length)


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
