"""Tables: drawn with a rule on a terminal, plain columns elsewhere, and never cut where no terminal sets a width."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from plait.cli.words import printable

UNBOUNDED = 4096


def console() -> Console:
    """Standard output; as wide as need be if it is not a terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else UNBOUNDED)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, n_words: int) -> None:
    """Prints rows under their columns; the first `n_words` columns are words, the others numbers."""
    box = SIMPLE_HEAD if sys.stdout.isatty() else None
    # A box puts a blank between columns already.
    table = Table(box=box, padding=(0, 1 if box else 2, 0, 0), pad_edge=False, show_edge=False)
    for place, name in enumerate(columns):
        is_word = place < n_words
        table.add_column(name, justify="left" if is_word else "right", overflow="fold", no_wrap=not is_word)
    for row in rows:
        table.add_row(*(printable(cell).replace("[", r"\[") for cell in row))
    out = console()
    out.print(printable(title), markup=False, style="italic", soft_wrap=True)
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as drawn:
        out.print(table)
    print("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def shown_p(p: float) -> str:
    """A p value: four digits, or that it is below what these show."""
    if p != p:
        return "-"
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"
