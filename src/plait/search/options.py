"""Settings by name, as people type them: a mapping of names to numbers, or to their digits, becomes a frozen config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from plait.errors import ConfigError

T = TypeVar("T")


def configured(config: type[T], options: Mapping[str, object], *, mode: str) -> T:
    """A config with these settings and defaults for the rest; an unknown name or a wrong value is a ConfigError."""
    kinds = _kinds(config)  # type: ignore[arg-type]
    names = list(kinds)
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in names:
            raise unknown(name, names, mode=mode)
        values[name] = _text(name, value) if _is_text(kinds[name]) else _number(name, value, kinds[name])
    return config(**values)


@cache
def _kinds(config: type) -> dict[str, Any]:
    """The type of each setting; finding that out takes longer than some searches do."""
    hints = get_type_hints(config)
    return {field.name: hints[field.name] for field in fields(config)}


def unknown(name: str, names: list[str], *, mode: str) -> ConfigError:
    if not names:
        return ConfigError(f"mode {mode!r} has no settings, and {name!r} was given; leave it out")
    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]!r}? It" if near else "; it"
    return ConfigError(f"mode {mode!r} has no setting {name!r}{meant} has {', '.join(names)}")


def _is_text(kind: Any) -> bool:
    return str in (get_args(kind) if isinstance(kind, UnionType) else (kind,))


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}; it must be a word")
    return value


def _number(name: str, value: object, kind: Any) -> int | float:
    """A whole number, or any finite one, as the setting's type says."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    wanted = float if float in kinds else int
    try:
        number = wanted(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (isinstance(value, float) and number != value):
        kind_name = "a number" if wanted is float else "a whole number"
        raise ConfigError(f"{name} is {value!r}; it must be {kind_name}")
    return number
