"""Checks of arguments from outside: a value of a wrong type becomes an error of plait that shows it and says what is
due. `shown` never fails, whatever the value is."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Iterable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, InputError, PlaitError

NUMPY_BOOLS = ("bool", "bool_")  # names of its class; numpy is not imported here

_short = reprlib.Repr()
_short.maxlevel = 3
_short.maxother = _short.maxstring = 200


def shown(value: object, limit: int = 60) -> str:
    """The repr of a value for a message: at most `limit` characters, also of values whose repr fails or is endless."""
    try:
        text = repr(value) if isinstance(value, str | bytes) and len(value) <= limit else _short.repr(value)
    except Exception:  # a repr may raise anything, such as RecursionError for nested values
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else f"{text[:limit]}..."


def as_list(name: str, values: object, what: str, error: type[PlaitError] = InputError) -> list[Any]:
    """The values of any iterable, generators included; an error for a single text, a mapping, or no iterable."""
    if not isinstance(values, str | bytes | bytearray | Mapping) and isinstance(values, Iterable):
        try:
            return list(values)
        except TypeError:  # such as an array without dimensions
            pass
    raise error(f"{name} must be a sequence of {what}; got {_described(values)}; put a single one in a list")


def as_path(name: str, value: object) -> Path:
    if isinstance(value, str | os.PathLike):
        try:
            return Path(value)
        except TypeError:  # a PathLike of bytes
            pass
    raise ConfigError(f"{name} must be a path, as text or pathlib.Path; got {_described(value)}")


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """A whole number of at least `least`. True and False are none."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ConfigError(f"{name} is {shown(value)}; it must be a whole number of at least {least}")
    if int(value) >= 1 << 31:
        raise ConfigError(f"{name} is {shown(value)}; it must be below {1 << 31:,}")


def check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool) and type(value).__name__ not in NUMPY_BOOLS:
        raise ConfigError(f"{name} is {shown(value)}; it must be True or False")


def check_type(name: str, value: object, kind: type | tuple[type, ...], due: str, error: type[PlaitError]) -> None:
    """`due` says what the value should be, such as "text"."""
    if not isinstance(value, kind):
        raise error(f"{name} must be {due}; got {_described(value)}")


def check_array(name: str, value: object, due: str) -> None:
    import numpy as np  # commands that need no array do not wait for it

    check_type(name, value, np.ndarray, f"a numpy array of {due}", InputError)


def _described(value: object) -> str:
    return f"{type(value).__name__}: {shown(value)}"


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError, as for any other damage, if it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
