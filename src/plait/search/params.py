"""What the parameter classes of all modes share: checks of values, and parsing of `name=value` words.

A mode's parameters are a frozen dataclass beside the code that reads them (`DenseParams`, `PlaidParams`, ...). A field
whose default is None is settled when the plan is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_type_hints

from plait.checks import shown
from plait.errors import ConfigError


class Params(Protocol):
    """Any params dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


P = TypeVar("P")

_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_EXPECTED = {int: "a whole number", float: "a number", bool: "True or False (1 or 0)", str: "a word"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParams:
    """For modes without parameters."""


def check_types(params: object) -> None:
    """Raises ConfigError unless every int, float, bool and str field holds a value of its type. Call it first in
    `__post_init__`: later checks may then compare numbers."""
    for name, types in _field_types(type(params)).items():  # type: ignore[arg-type]
        value = getattr(params, name)
        if not any(_is_instance(value, kind) for kind in types):
            raise _wrong_type(name, value, types)


def check_counts(params: object, *names: str) -> None:
    """Raises ConfigError for a count below 1. None, which is settled later, passes."""
    for name in names:
        value = getattr(params, name)
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {shown(value)}; it must be one of {', '.join(choices)}")


def parse_fields(params_class: type[P], words: Mapping[str, object], *, mode: str) -> P:
    """The params with values parsed from words of a command line: parse_fields(DenseParams, {"n_probe": "4"})."""
    all_types = _field_types(params_class)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in words.items():
        if name not in all_types:
            raise unknown_param(name, list(all_types), mode=mode)
        values[name] = _parse(name, value, all_types[name]) if isinstance(value, str) else value
    return params_class(**values)


def unknown_param(name: str, names: Sequence[str], *, mode: str) -> ConfigError:
    if not names:
        return ConfigError(f"mode {mode!r} has no parameters, but {name!r} was given; leave it out")
    close = get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]!r}? It" if close else "; it"
    return ConfigError(f"mode {mode!r} has no parameter {name!r}{hint} has {', '.join(names)}")


@cache
def _field_types(params_class: type) -> dict[str, tuple[type, ...]]:
    """The types that each field accepts. Cached: reading type hints takes longer than some searches."""
    hints = get_type_hints(params_class)
    kinds = {field.name: hints[field.name] for field in fields(params_class)}
    return {name: get_args(kind) if isinstance(kind, UnionType) else (kind,) for name, kind in kinds.items()}


def _is_instance(value: object, kind: type) -> bool:
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is float:
        return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    return isinstance(value, kind) if kind in (bool, str, NoneType) else True


def _parse(name: str, word: str, types: Sequence[type]) -> object:
    if str in types:
        return word
    if bool in types:
        value: object = _BOOLEANS.get(word.lower())
    else:
        try:
            value = float(word) if float in types else int(word)
        except ValueError:
            value = None
    if value is None:
        raise _wrong_type(name, word, types)
    return value


def _wrong_type(name: str, value: object, types: Sequence[type]) -> ConfigError:
    expected = next((text for kind, text in _EXPECTED.items() if kind in types), "another value")
    return ConfigError(f"{name} is {shown(value)}; it must be {expected}")
