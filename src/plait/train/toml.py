"""TOML to frozen configs and back. An unknown key is an error that names the file, the line and what may have been
meant; so is a value of the wrong type."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from plait.errors import ConfigError

Config = TypeVar("Config")
_HEADER = re.compile(r"^\s*\[+\s*([\w.-]+)\s*\]+")
_KEY = re.compile(r"^\s*([\w-]+)\s*=")


@dataclass(frozen=True, slots=True)
class Place:
    """A section of a file."""

    file: str
    section: str
    line: int | None  # of the header
    lines: Mapping[str, int]  # of its keys

    def of(self, key: str) -> str:
        """Where a key stands, for a message; what was not in the file was set from outside."""
        line = self.lines.get(key)
        return f"{self.file}, line {line}, [{self.section}]" if line else f"{self.file}, [{self.section}]"


class Source:
    """The text of a TOML file, with the lines of its sections and keys."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self._text = name, text

    def values(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{self.name} is not TOML: {error}") from None

    def place(self, section: str, number: int = 0) -> Place:
        """The section of this name; the `number`-th from 0 of those that may come more than once."""
        header: int | None = None
        lines: dict[str, int] = {}
        seen = -1
        within = False
        for at, line in enumerate(self._text.splitlines(), 1):
            if found := _HEADER.match(line):
                seen += found[1] == section
                within = found[1] == section and seen == number
                header = at if within else header
            elif within and (key := _KEY.match(line)):
                lines[key[1]] = at
        return Place(self.name, section, header, lines)


def value_of(text: str) -> Any:
    """A TOML value, or the text itself where it is none: paths need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def unknown_name(what: str, name: str, known: Iterable[str], place: Place) -> ConfigError:
    """The error for a name that is not one of the known."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    where = place.of(name) if what == "key" else f"{place.file}, line {place.line}" if place.line else place.file
    return ConfigError(f"{where}: there is no {what} {name!r}; {hint}")


def read_section(cls: type[Config], values: Any, place: Place) -> Config:
    """A config from the values of a section."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{place.file}: [{place.section}] must be a section with keys; got {values!r:.40}")
    hints = get_type_hints(cls)
    assert is_dataclass(cls)
    known = [own.name for own in fields(cls)]
    for key in values:
        if key not in known:
            raise unknown_name("key", key, known, place)
    for own in fields(cls):
        if own.default is MISSING and own.default_factory is MISSING and own.name not in values:
            raise ConfigError(f"{place.of('')}: there is no {own.name!r}, which is needed")
    read = {key: _typed(value, hints[key], key, place) for key, value in values.items()}
    try:
        return cls(**read)
    except ConfigError as error:
        named = next((key for key in read if re.search(rf"\b{re.escape(key)}\b", str(error))), "")
        raise ConfigError(f"{place.of(named)}: {error}") from None


def _typed(value: Any, hint: Any, key: str, place: Place) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{place.of(key)}: {key!r} must be a list; got {value!r:.40}")
        return tuple(_typed(each, get_args(hint)[0], key, place) for each in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{place.of(key)}: {key!r} must be {_NAMES.get(hint, hint.__name__)}; got {value!r:.40}")
    return value


_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def toml_of(sections: Mapping[str, Any]) -> str:
    """Sections of plain values, mappings or configs; a tuple of configs is an array of tables."""
    written = []
    for name, section in sections.items():
        if isinstance(section, tuple):
            written += [f"[[{name}]]\n{_table(own)}" for own in section]
        else:
            written.append(f"[{name}]\n{_table(section)}")
    return "\n".join(written)


def _table(section: Any) -> str:
    values = (
        {own.name: getattr(section, own.name) for own in fields(section)} if is_dataclass(section) else dict(section)
    )
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items() if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_value(each)}' for key, each in value.items() if each is not None)}}}"
    return repr(value)
