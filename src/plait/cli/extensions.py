"""Verbs that other packages add. Each package names its command in the entry point group `plait.commands`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points

import typer

from plait.cli.errors import handle_errors
from plait.errors import ConfigError

ENTRY_POINT_GROUP = "plait.commands"


@dataclass(frozen=True, slots=True)
class Extension:
    """A verb whose package may not be installed. It is listed here, and looked up only when it is used, because reading
    the entry points of all installed packages takes tens of milliseconds at every start."""

    verb: str
    package: str
    folder: str  # of the package, in a clone of plait
    help: str


EXTENSIONS = (
    Extension("reproduce", "plait-reproduce", "./reproduce", "Test the papers' claims (pip install plait-reproduce)."),
)


def run_extension(extension: Extension) -> Callable[[typer.Context], None]:
    """The command of a verb: it runs the installed package's command, or says how to install the package."""

    def run(context: typer.Context) -> None:
        commands = entry_points(group=ENTRY_POINT_GROUP, name=extension.verb)
        if not commands:
            raise ConfigError(
                f"plait {extension.verb} comes with another package: pip install {extension.package}, or from a clone "
                f"of plait: pip install {extension.folder}"
            )
        app = typer.Typer(
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        (entry,) = commands
        app.command()(handle_errors(entry.load()))
        typer.main.get_command(app)(args=context.args, prog_name=f"plait {extension.verb}")

    return run
