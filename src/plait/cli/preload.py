"""A head start for `plait search`: its model loads while the command line itself is still being imported. Reads as
little of the arguments as that takes; whatever it misreads costs nothing but the head start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.encode.preload import ModelPreload

_started: list[ModelPreload] = []


def start(arguments: Sequence[str]) -> None:
    """Begins to load the model of a search, unless the search needs none."""
    if list(arguments[:1]) != ["search"] or {"bm25", "--mode=bm25", "-h", "--help"} & set(arguments):
        return
    from plait.encode.preload import ModelPreload

    threads = _value(arguments, "--threads")
    _started[:] = [
        ModelPreload(_value(arguments, "--model"), n_threads=int(threads) if threads and threads.isdecimal() else None)
    ]


def take(model: str | None, n_threads: int | None) -> ModelPreload | None:
    """The model that was begun, if it is this one."""
    matching = [ahead for ahead in _started if (ahead.model, ahead.n_threads) == (model, n_threads)]
    _started.clear()
    return matching[0] if matching else None


def _value(arguments: Sequence[str], option: str) -> str | None:
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None
