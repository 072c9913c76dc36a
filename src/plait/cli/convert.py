"""`plait convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import StoppedError, say

if TYPE_CHECKING:
    from plait.convert.convert import Converted
    from plait.evaluate import Dataset


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A folder, or a model of the hub: ORG/NAME[@REVISION].", show_default=False
        ),
    ],
    to: Annotated[Path, typer.Option(metavar="MODEL", help="The model folder to write.")],
    as_layout: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="LAYOUT", help="Read SOURCE as this layout; detected by default.", show_default=False
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="int8, fp32, fp16, several with commas, both (int8 and fp32) or all.")
    ] = "int8",
    dims: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Keep the first N dimensions (Matryoshka).", show_default=False),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="Tokens to one vector: mean, cls, max, lasttoken, weightedmean; joined with + if several.",
            show_default=False,
        ),
    ] = None,
    query_prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The text before every query.", show_default=False)
    ] = None,
    document_prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The text before every document.", show_default=False)
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=4, metavar="N", help="Tokens of a document, or of a reranker's pair.", show_default=False),
    ] = None,
    query_length: Annotated[
        int | None, typer.Option(min=4, metavar="N", help="Tokens of a query.", show_default=False)
    ] = None,
    mcls: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="BGE-M3: a [CLS] after every N tokens of a document.", show_default=False
        ),
    ] = None,
    token_states: Annotated[
        bool,
        typer.Option(
            "--token-states",
            help="Of a dense model: give the state of every token as multi vectors, too; for plait index --dims.",
        ),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="The name of the model; SOURCE by default.", show_default=False)
    ] = None,
    revision: Annotated[
        str, typer.Option(help="A branch, tag or commit of the hub, as after the @.", show_default=False)
    ] = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare rankings of real text with the source model, too.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="A BEIR folder: print nDCG@10 on it for every precision.", show_default=False
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Which judgements of FOLDER to use.")] = "test",
    force: Annotated[bool, typer.Option("--force", help="Replace MODEL if it exists.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to use; all cores by default.")] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Run the source model on cpu or cuda; by default on the GPU if torch has one, else on the CPU.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Convert a checkpoint of another library to a model folder.

    Reads Stanford ColBERT, PyLate, sentence-transformers (dense, sparse, multi-vector, cross-encoder), BGE-M3, XTR,
    ConstBERT, SPLADE, rerankers, model2vec, ONNX folders of LightOn and fastembed, plain transformers encoders and runs
    of plait train. The layout is detected, and every setting is printed with the file it was read from. The graph is
    compared with the source model in torch; MODEL is written only if they agree. Code in a checkpoint is never run.
    Needs pip install 'plait[convert]'; searching with MODEL does not.

    \b
    Examples:
      plait convert BAAI/bge-m3 --to bge-m3
      plait convert colbert-ir/colbertv2.0 --to colbertv2 --verify
      plait convert ./my-checkpoint --to my-model --as pylate
      plait convert nomic-ai/nomic-embed-text-v1.5 --to nomic --dims 256
      plait convert thenlper/gte-small --to gte-states --token-states
      plait convert cross-encoder/ms-marco-MiniLM-L6-v2 --to reranker
      plait index corpus.jsonl --to index --model bge-m3
    """
    from plait.convert.packages import check_packages

    check_packages()
    from plait.convert.checkpoint import Overrides
    from plait.convert.convert import convert as run_conversion

    overrides = Overrides(
        pooling=pooling,
        dims=dims,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        query_length=query_length,
        document_length=length,
        mcls=mcls,
        token_states=token_states,
    )
    dataset = None
    if data is not None:
        from plait.train.export.parity import read_dataset

        dataset = read_dataset(data, split)  # before the work: a wrong folder should be said at once
    try:
        converted = run_conversion(
            source,
            to,
            layout=as_layout,
            precision=precision,
            name=name,
            revision=revision,
            overrides=overrides,
            force=force,
            verify=verify,
            n_threads=threads,
            device=device,
            on_stage=say,
        )
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped; {to} was not written. Files that were fetched are kept for the next run"
        ) from None
    _print_converted(converted)
    if dataset is not None:
        _print_ranking(converted, dataset, threads)


def _print_ranking(converted: Converted, dataset: Dataset, threads: int | None) -> None:
    """nDCG@10 of each kind of embedding: what rounding costs. Texts are truncated to the model's length, as the
    published figures are."""
    from plait.encode.load import load_model
    from plait.rerank.cross_card import CrossCard
    from plait.train.export.parity import measure_ranks

    if isinstance(converted.card, CrossCard):
        print(f"  a reranker ranks nothing alone; measure it with: plait eval INDEX --rerank-model {converted.folder}")
        return
    for precision in converted.card.precisions:
        encoder = load_model(converted.folder, precision=precision, n_threads=threads)
        for values in measure_ranks({precision: encoder}, dataset, say).values.values():
            shown = "  ".join(f"{kind} {value:.4f}" for kind, value in values.items())
            print(f"  nDCG@10 on {dataset.name}, {precision}: {shown}")


def _print_converted(converted: Converted) -> None:
    card = converted.card
    sizes = ", ".join(
        f"{precision} {sum(file.bytes for file in record.files) / 1e6:.1f} MB"
        for precision, record in card.precisions.items()
    )
    print(f"{converted.folder}: {card.fingerprint}, {sizes}")
    for precision, parity in converted.parity.items():
        for kind, difference in parity.differences.items():
            unit = " standard deviations" if kind == "score" else ""
            alike = "correlation" if kind == "score" else "mean cosine"
            line = f"  {precision} {kind}: at most {difference:.1e}{unit} off {parity.against}"
            line += f", {alike} {parity.cosines[kind]:.5f}" if kind in parity.cosines else ""
            print(line)
            if kind in parity.agreement:
                seen = parity.agreement[kind]
                print(f"    real text: lowest cosine {seen.lowest_cosine:.6f}, same best ten {seen.top10:.1%}")
    if converted.unverified:
        print(f"  not compared with the source model: {converted.unverified}")
