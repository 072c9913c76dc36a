"""The command line. The `plait` script runs `main`; each command is one file of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0 for success, 1 if nothing was found or a check failed, 2 for wrong use, 130 for
    Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show is escaped: no text may cause a traceback.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    if given in (["--version"], ["-V"]):  # answered without importing typer
        from plait.version import __version__

        print(f"plait {__version__}")
        return 0
    from plait.cli import preload

    preload.start(given)
    from typer.main import get_command

    from plait.cli.app import app

    try:
        get_command(app)(args=given, prog_name="plait")
    except SystemExit as end:
        return _flushed(end.code if isinstance(end.code, int) else int(end.code is not None))
    return _flushed(0)


def _flushed(code: int) -> int:
    """Flushes the output and returns the code; the reader may have closed the pipe early, as `head` does."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
