"""The application: all commands under one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from plait.cli.backup import backup
from plait.cli.check import check
from plait.cli.cluster import CLUSTER
from plait.cli.compact import compact
from plait.cli.compare import compare_runs
from plait.cli.convert import convert
from plait.cli.count import count
from plait.cli.cur import cur
from plait.cli.delete import delete
from plait.cli.demo import demo
from plait.cli.dump import dump
from plait.cli.errors import handle_errors
from plait.cli.eval import evaluate
from plait.cli.export import export
from plait.cli.extensions import EXTENSIONS, run_extension
from plait.cli.get import get
from plait.cli.import_index import import_index
from plait.cli.index import index
from plait.cli.info import info
from plait.cli.keys import keys
from plait.cli.mcp import mcp
from plait.cli.mine import mine
from plait.cli.models import models
from plait.cli.rerank import rerank
from plait.cli.search import search
from plait.cli.serve import serve
from plait.cli.similar import similar
from plait.cli.sync import sync
from plait.cli.train import train
from plait.cli.tune import tune
from plait.version import __version__

COMMANDS: dict[str, Callable[..., None]] = {
    "index": index,
    "sync": sync,
    "search": search,
    "similar": similar,
    "get": get,
    "count": count,
    "rerank": rerank,
    "delete": delete,
    "info": info,
    "check": check,
    "backup": backup,
    "compact": compact,
    "import": import_index,
    "dump": dump,
    "tune": tune,
    "eval": evaluate,
    "mine": mine,
    "cur": cur,
    "train": train,
    "compare": compare_runs,
    "export": export,
    "convert": convert,
    "models": models,
    "serve": serve,
    "keys": keys,
    "mcp": mcp,
    "demo": demo,
}

# Verbs that have verbs of their own, with a sentence on each.
GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "cluster": ("Build, search and serve collections of shards, and train, on Ray.", CLUSTER),
}

# Plain help: importing rich would take longer than everything else that --help does.
app = typer.Typer(
    name="plait",
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"plait {__version__}")
        raise typer.Exit


@app.callback()
def plait(
    version: Annotated[
        bool, typer.Option("-V", "--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Search by meaning and by words: dense, sparse, multi-vector and BM25 in one index.

    Exit codes: 0 fine, 1 nothing found or a check failed, 2 wrong use, 130 stopped by Ctrl-C.
    """


for verb, command in COMMANDS.items():
    app.command(verb)(handle_errors(command))

for group, (sentence, commands) in GROUPS.items():
    inner = typer.Typer(name=group, help=sentence, no_args_is_help=True, rich_markup_mode=None)
    for verb, command in commands.items():
        inner.command(verb)(handle_errors(command))
    app.add_typer(inner)


def all_verbs() -> list[str]:
    """Every command as it is written: `search`, `cluster index`."""
    return [*COMMANDS, *(f"{group} {verb}" for group, (_, commands) in GROUPS.items() for verb in commands)]


# All arguments, --help among them, go to the other package's command.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
for extension in EXTENSIONS:
    app.command(extension.verb, help=extension.help, context_settings=_PASS_ON)(handle_errors(run_extension(extension)))
