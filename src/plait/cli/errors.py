"""How a command ends: what it raises becomes one message on stderr and an exit code, never a traceback."""

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
    """Ctrl-C during long work; the message says what was kept and how to go on."""


def say(message: str) -> None:
    """A line for the user rather than for the next program: to stderr."""
    print(message, file=sys.stderr)


def handle_errors(command: Callable[Given, None]) -> Callable[Given, None]:
    """The command, with errors turned into a message and an exit code."""

    @functools.wraps(command)
    def ending(*args: Given.args, **kwargs: Given.kwargs) -> None:
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
            raise  # whoever read the output has left; that is no error
        except OSError as error:
            say(f"plait: {error}")
            raise typer.Exit(NOTHING_FOUND) from None

    return ending
