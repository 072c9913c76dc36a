"""Exit codes, and errors of commands as one message on stderr rather than a traceback."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from plait.errors import PlaitError

NOTHING_FOUND = 1
WRONG_USE = 2
STOPPED = 130

Given = ParamSpec("Given")


class StoppedError(Exception):
    """Ctrl-C during long work; the message says what was saved and how to continue."""


def say(message: str) -> None:
    """Prints a message for the user on stderr; standard output is for results."""
    print(message, file=sys.stderr)


def handle_errors(command: Callable[Given, None]) -> Callable[Given, None]:
    """Wraps a command: errors become a message and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PlaitError as error:
            say(f"plait: {error}")
            raise typer.Exit(WRONG_USE) from None
        except StoppedError as stop:
            say(f"plait: {stop}")
            raise typer.Exit(STOPPED) from None
        except KeyboardInterrupt:
            say("plait: stopped")
            raise typer.Exit(STOPPED) from None
        except BrokenPipeError:
            raise  # the reader closed the pipe; `main` handles it
        except OSError as error:
            say(f"plait: {error}")
            raise typer.Exit(NOTHING_FOUND) from None

    return wrapper
