"""Arguments and options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of the index.", show_default=False)]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FOLDER", help="The model; by default the index's own, or the bundled one for a new index."
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to use; by default, all cores.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
