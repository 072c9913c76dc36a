"""`plait compact`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import say
from plait.cli.info import describe_size
from plait.cli.options import IndexPath, PoolFactor, PoolFixed, PoolMethod, Threads, pooling_from

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
        Bits | None, typer.Option(help="Bits a dimension of the multi strand; by default as it is, or 2 at first.")
    ] = None,
    keep_8bit: Annotated[
        bool | None,
        typer.Option(
            "--keep-8bit/--no-keep-8bit", help="Keep 8 bits a dimension beside them, for the last stage of a search."
        ),
    ] = None,
    retrain: Annotated[bool, typer.Option("--retrain", help="Fit the compression anew.")] = False,
    pool_fixed: PoolFixed = None,
    pool_factor: PoolFactor = None,
    pool_method: PoolMethod = None,
    threads: Threads = None,
) -> None:
    """Make an index small: one segment, nothing deleted, the multi strand compressed.

    Readers go on undisturbed. If it is stopped, the index is as it was.

    \b
    Examples:
      plait compact my-index
      plait compact my-index --bits 4
      plait compact my-index --pool-fixed 32
    """
    import plait

    with plait.open(index, n_threads=threads) as opened:
        before = opened.info().bytes
        pooling = pooling_from(pool_fixed, pool_factor, pool_method)
        done = opened.compact(
            bits=None if bits is None else int(bits), keep_8bit=keep_8bit, retrain=retrain, pooling=pooling
        )
        after = opened.info().bytes
    for line in _lines(done, before, after):
        print(line)
    if done.note:
        say(done.note)


def _lines(done: CompactionReport, before: int, after: int) -> list[str]:
    lines = [
        f"documents  {done.n_documents:,}",
        f"segments   {done.n_segments_before:,} -> {done.n_segments_after:,}",
        f"size       {describe_size(before)} -> {describe_size(after)}",
    ]
    if done.pooling:
        lines.append(f"pooling    {done.pooling}")
    if done.bits is not None and done.bytes_a_vector is not None:
        lines.append(
            f"multi      {done.n_vectors:,} vectors, {done.bits} bits a dimension in {done.n_cells:,} cells: "
            f"{done.bytes_a_vector:.1f} bytes a token"
        )
    if done.codes_recall is not None:
        lines.append(f"recall     the codes keep {done.codes_recall:.3f} of the vectors' best 10")
    if done.drift is not None:
        lines.append(f"drift      new vectors lose {done.drift:.2f} times what the first ones did")
    return [*lines, f"time       {done.seconds:.1f} s"]
