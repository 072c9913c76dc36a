"""Answers of a server that are errors, as the exceptions that an `Index` would raise."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from plait import errors
from plait.checks import shown
from plait.client.flow import Response
from plait.errors import AccessError, PlaitError, ServerError

T = TypeVar("T")

MAX_QUOTED = 500  # characters of a server's message in an error

_ERRORS: dict[str, type[PlaitError]] = {
    "invalid_filter": errors.FilterError,
    "invalid_query": errors.QueryError,
    "invalid_document": errors.DocumentError,
    "invalid_input": errors.InputError,
    "invalid_option": errors.ConfigError,
    "timeout": errors.SearchTimeoutError,
    "cancelled": errors.SearchCancelledError,
    "unknown_index": errors.NotAnIndexError,
    "unknown_model": errors.ModelError,
    "model_error": errors.ModelError,
    "index_error": errors.StoreError,
    "locked": errors.LockedError,
    "read_only": errors.ReadOnlyError,
    "not_allowed": errors.AccessError,
    "missing_scope": errors.AccessError,
    "unauthorized": errors.AccessError,
}


def answer_error(response: Response) -> PlaitError:
    """The exception for an answer with a status of an error."""
    try:
        given = json.loads(response.body)["error"]
        code, message = str(given["code"]), str(given["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        # A proxy, or another server: its page would not help.
        return ServerError(f"the server answered with status {response.status}, which is not an answer of plait serve")
    return _error(code, message, response.status)


def job_error(error: Mapping[str, Any]) -> PlaitError:
    """The exception of a job that failed."""
    return _error(str(error["code"]), str(error["message"]), None)


def _error(code: str, message: str, status: int | None) -> PlaitError:
    message = message[:MAX_QUOTED]
    if code in _ERRORS:
        return _ERRORS[code](message)
    if status in (401, 403):
        return AccessError(message)
    if status in (400, 413, 415, 422):
        return errors.ConfigError(message)
    return ServerError(f"{message} ({code}{'' if status is None else f', status {status}'})")


def parse(what: str, given: Any, read: Callable[[Any], T]) -> T:
    """`read(given)`; ServerError if the server sent something else."""
    try:
        return read(given)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise ServerError(
            f"the server sent something else than {what} ({type(error).__name__}: {shown(str(error))}); "
            f"is it a plait serve of another version?"
        ) from None
