"""Arguments and options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plait.errors import ConfigError

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of the index.", show_default=False)]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FOLDER", help="The model; by default the index's own, or the bundled one for a new index."
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to use; by default, all cores.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the mode, such as n_probe=16; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def settings_of(given: list[str] | None) -> dict[str, object] | None:
    """NAME=VALUE as a mapping; None where nothing was set. What the names mean is for the mode to say."""
    settings: dict[str, object] = {}
    for one in given or []:
        name, equals, value = (part.strip() for part in one.partition("="))
        if not (name and equals and value):
            raise ConfigError(f"--set {one!r} is not a setting; write it as NAME=VALUE, for example n_probe=16")
        if name in settings:
            raise ConfigError(f"{name} is set twice, to {settings[name]} and to {value}; choose one")
        settings[name] = value
    return settings or None
