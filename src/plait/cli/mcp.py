"""`plait mcp`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from plait.cli.errors import say
from plait.cli.options import Model, Threads
from plait.errors import ConfigError


def mcp(
    indexes: Annotated[list[Path], typer.Argument(metavar="INDEX...", help="Folders of indexes.", show_default=False)],
    model: Model = None,
    threads: Threads = None,
) -> None:
    """Serve indexes to an assistant, over stdin and stdout.

    Speaks the Model Context Protocol: an assistant starts this command and gets
    tools to search and read. Nothing is written. An index has the name of its
    folder. Needs `pip install 'plait[mcp]'`.

    \b
    Example:
      plait mcp my-index notes
    """
    try:
        from plait.serve.mcp import create_mcp
    except ImportError as error:
        raise ConfigError(f"plait mcp needs {error.name}; pip install 'plait[mcp]'") from None
    import plait
    from plait.serve.local import LocalIndexes, index_name

    with ExitStack() as opened:
        local = LocalIndexes(
            (
                index_name(path),
                opened.enter_context(plait.open(path, model=model, n_threads=threads, read_only=True)),
            )
            for path in indexes
        )
        say(f"plait: serving {', '.join(local.names())} on stdin and stdout; end with Ctrl-C")
        create_mcp(local).run("stdio")
