"""`plait compact`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import say
from plait.cli.info import describe_size
from plait.cli.options import (
    Dims,
    IndexPath,
    Model,
    PoolFactor,
    PoolFixed,
    PoolMethod,
    Threads,
    Wait,
    pooling_from,
    projection_from,
)

if TYPE_CHECKING:
    from plait.storage.compaction import CompactionReport


class Bits(StrEnum):
    one = "1"
    two = "2"
    four = "4"
    eight = "8"


def compact(
    index: IndexPath,
    bits: Annotated[
        Bits | None, typer.Option(help="Bits for each dimension of multi vectors; by default as before, or 2.")
    ] = None,
    keep_8bit: Annotated[
        bool | None,
        typer.Option("--keep-8bit/--no-keep-8bit", help="Store 8-bit codes as well, for the last stage of a search."),
    ] = None,
    retrain: Annotated[bool, typer.Option("--retrain", help="Fit the codec again.")] = False,
    pool_fixed: PoolFixed = None,
    pool_factor: PoolFactor = None,
    pool_method: PoolMethod = None,
    dims: Dims = None,
    refit: Annotated[
        bool,
        typer.Option(
            "--refit",
            help="Encode all texts again and fit the projection to the new vectors: projected vectors cannot be made "
            "whole again. Takes as long as indexing did.",
        ),
    ] = False,
    model: Model = None,
    threads: Threads = None,
    wait: Wait = 30.0,
) -> None:
    """Merge and compress an index.

    Leaves one segment without deleted rows, with compressed multi vectors. Readers are not disturbed. If the command is
    interrupted, the index is unchanged.

    With --dims the token vectors are projected to fewer dimensions, by directions that are fitted to this index, if it
    has enough vectors. The whole vectors are gone then: other --dims, --dims off and a new fit need --refit.

    \b
    Examples:
      plait compact my-index
      plait compact my-index --bits 4
      plait compact my-index --pool-fixed 32
      plait compact my-index --dims 128
      plait compact my-index --dims 96 --refit
    """
    import plait

    with plait.open(index, model=model, n_threads=threads, write_timeout=wait) as opened:
        before = opened.info().bytes
        pooling = pooling_from(pool_fixed, pool_factor, pool_method)
        report = opened.compact(
            bits=None if bits is None else int(bits),
            keep_8bit=keep_8bit,
            retrain=retrain,
            pooling=pooling,
            projection=projection_from(dims),
            refit=refit,
        )
        after = opened.info().bytes
    for line in _lines(report, before, after):
        print(line)
    if report.note:
        say(report.note)


def _lines(report: CompactionReport, before: int, after: int) -> list[str]:
    lines = [
        f"documents  {report.n_documents:,}",
        f"segments   {report.n_segments_before:,} -> {report.n_segments_after:,}",
        f"size       {describe_size(before)} -> {describe_size(after)}",
    ]
    if report.pooling:
        lines.append(f"pooling    {report.pooling}")
    if report.dims is not None and report.energy is not None:
        lines.append(f"projection fitted: {report.dims} dimensions keep {report.energy:.1%} of the vectors' energy")
    if report.bits is not None and report.bytes_per_vector is not None:
        lines.append(
            f"multi      {report.n_vectors:,} vectors, {report.bits} bits a dimension in {report.n_centroids:,} cells: "
            f"{report.bytes_per_vector:.1f} bytes a token"
        )
    if report.codes_recall is not None:
        lines.append(f"recall     the codes keep {report.codes_recall:.3f} of the vectors' best 10")
    if report.drift is not None:
        lines.append(f"drift      vectors added later lose {report.drift:.2f} times what the first ones did")
    return [*lines, f"time       {report.seconds:.1f} s"]
