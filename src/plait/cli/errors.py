"""Exit codes, and errors of commands as one message on stderr rather than a traceback."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

import typer

from plait.errors import PlaitError, UnknownFieldWarning

NOTHING_FOUND = 1
WRONG_USE = 2
STOPPED = 130

Given = ParamSpec("Given")


class StoppedError(Exception):
    """Ctrl-C during long work; the message says what was saved and how to continue."""


def say(message: str) -> None:
    """Prints a message for the user on stderr; standard output is for results."""
    print(message, file=sys.stderr)


@contextmanager
def _warnings_as_messages() -> Iterator[None]:
    """Prints plait's warnings as messages; Python would name a line of its code."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_plainly(message: Warning | str, category: type[Warning], *rest: Any, **others: Any) -> None:
            if issubclass(category, UnknownFieldWarning):
                say(f"plait: {message}")
            else:
                show(message, category, *rest, **others)

        warnings.showwarning = show_plainly
        warnings.simplefilter("always", UnknownFieldWarning)
        yield


def handle_errors(command: Callable[Given, None]) -> Callable[Given, None]:
    """Wraps a command: errors become a message and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            with _warnings_as_messages():
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
        except BrokenPipeError:  # the reader has what it wants, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None
        except OSError as error:
            say(f"plait: {error}")
            raise typer.Exit(NOTHING_FOUND) from None

    return wrapper
