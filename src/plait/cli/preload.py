"""Loads the model of `plait search` in the background, while the command line is still being imported.

Only --model, --threads and --mode are read here. A wrong guess costs nothing: the search then loads its own model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.encode.preload import ModelPreload

_started: list[ModelPreload] = []


def start(arguments: Sequence[str]) -> None:
    """Starts to load the model if the command is a search that needs one."""
    if list(arguments[:1]) != ["search"] or {"bm25", "--mode=bm25", "-h", "--help"} & set(arguments):
        return
    model = _value(arguments, "--model")
    if model is not None and "/" in model and not Path(model).is_dir():
        return  # a model of the hub, which may have to be fetched and converted first
    from plait.encode.preload import ModelPreload

    threads = _value(arguments, "--threads")
    _started[:] = [ModelPreload(model, n_threads=int(threads) if threads and threads.isdecimal() else None)]


def take(model: str | None, n_threads: int | None) -> ModelPreload | None:
    """The model that is being loaded, if it is this one."""
    matching = [loading for loading in _started if (loading.model, loading.n_threads) == (model, n_threads)]
    _started.clear()
    return matching[0] if matching else None


def _value(arguments: Sequence[str], option: str) -> str | None:
    for number, argument in enumerate(arguments):
        if argument == option and number + 1 < len(arguments):
            return arguments[number + 1]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None
