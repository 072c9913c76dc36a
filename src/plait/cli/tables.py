"""Tables: with a rule on a terminal, plain columns elsewhere, never cut if no terminal sets a width."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

UNBOUNDED_WIDTH = 4096

_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " ")
_DIRECTIONS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "")
_REPLACED = {**_CONTROLS, **_DIRECTIONS, ord("\n"): "\n"}


class PipeConsole(Console):
    """A console that leaves a closed pipe to `plait.cli.errors`; rich would exit with 1, which means nothing found."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def printable(text: str) -> str:
    """The text without characters that control a terminal: a document must not be able to draw on the screen."""
    return text.translate(_REPLACED)


def console() -> Console:
    """Standard output; without a limit on the width if it is not a terminal."""
    return PipeConsole(highlight=False, width=None if sys.stdout.isatty() else UNBOUNDED_WIDTH)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, n_words: int) -> None:
    """Prints rows under their columns; the first `n_words` columns are words, the others numbers."""
    box = SIMPLE_HEAD if sys.stdout.isatty() else None
    # A box puts a space between columns already.
    table = Table(box=box, padding=(0, 1 if box else 2, 0, 0), pad_edge=False, show_edge=False)
    for number, name in enumerate(columns):
        is_word = number < n_words
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
    """A p value with four digits, or `<0.0001`; `-` for nan."""
    if p != p:
        return "-"
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"
