"""The command line. `main` is what the `plait` script runs; each verb has a file of its own beside this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code: 0 fine, 1 nothing found or a check failed, 2 wrong use, 130 stopped."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets an escape for it: text from anywhere must not end in a traceback.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    if given == ["--version"]:  # answered before the libraries of the command line are loaded
        from plait.version import __version__

        print(f"plait {__version__}")
        return 0
    from plait.cli import preload as early

    early.start(given)
    from typer.main import get_command

    from plait.cli.app import app

    try:
        get_command(app)(args=given, prog_name="plait")
    except SystemExit as end:
        return _flushed(end.code if isinstance(end.code, int) else int(end.code is not None))
    return _flushed(0)


def _flushed(code: int) -> int:
    """The code, once all output is out; whoever read it may have left early, as `head` does."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
