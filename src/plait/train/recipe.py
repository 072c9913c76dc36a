"""A recipe: everything that a run depends on, in one file of TOML. It is read and checked before anything is loaded,
and a copy is kept with the run."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from plait.errors import ConfigError
from plait.train.batching.plan import BatchingConfig
from plait.train.data.sources import SourceConfig
from plait.train.mining.config import MiningConfig
from plait.train.optimiser import OptimiserConfig

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


PRECISIONS = ("fp32", "bf16")
MODES = ("hybrid", "dense", "multi")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """How the model is watched: by searching a small corpus every so often."""

    data: str = ""  # a BEIR folder; empty: no evaluation
    split: str = "dev"
    every: int = 100  # steps; it is also done after the last one
    measure: str = "nDCG@10"
    mode: str = "hybrid"
    documents: int = 2000  # of the corpus: the judged ones, and others at random up to this many; 0 is all
    queries: int = 200  # the first so many; 0 is all
    k: int = 100

    def __post_init__(self) -> None:
        if self.every < 1 or self.k < 1:
            raise ConfigError(f"every is {self.every} and k is {self.k}; both must be at least 1")
        if self.mode not in MODES:
            raise ConfigError(f"mode is {self.mode!r}; choose one of {', '.join(MODES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What else decides the numbers that come out."""

    seed: int = 0
    precision: str = "fp32"
    threads: int = 0  # of torch; 0 leaves it alone. Another number may give other last digits
    save_every: int = 200  # steps between checkpoints that a killed run goes on from
    cpu: bool = False  # train on the processor even where there is something faster

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision is {self.precision!r}; choose one of {', '.join(PRECISIONS)}")
        if self.save_every < 1 or self.threads < 0 or self.seed < 0:
            raise ConfigError(
                f"save_every is {self.save_every}, threads is {self.threads}, seed is {self.seed}; the first must be "
                f"at least 1 and the others 0 or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All sections. What `model` and `objective` hold is checked by those who build them."""

    model: Mapping[str, Any]
    objective: Mapping[str, Any]
    data: tuple[SourceConfig, ...]
    mining: MiningConfig = field(default_factory=MiningConfig)
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    run: RunConfig = field(default_factory=RunConfig)
    places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)  # of sections, for messages

    def place(self, section: str) -> Place:
        """Where a section stands."""
        return self.places.get(section) or Place("the recipe", section, None, {})

    def toml(self) -> str:
        """The recipe with every number, whether it was given or not."""
        return toml_of({name: getattr(self, name) for name in SECTIONS})


SECTIONS = [own.name for own in fields(Recipe) if own.name != "places"]
_CONFIGS: dict[str, type] = {
    "mining": MiningConfig,
    "batching": BatchingConfig,
    "optimiser": OptimiserConfig,
    "evaluation": EvaluationConfig,
    "run": RunConfig,
}


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """The recipe at `path`, with `section.key=value` changes; ConfigError names the line of what is wrong."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the recipe {path}: {error.strerror or error}") from None
    return parse_recipe(text, name=str(path), changes=changes)


def parse_recipe(text: str, *, name: str = "the recipe", changes: Sequence[str] = ()) -> Recipe:
    source = Source(name, text)
    values = source.values()
    for change in changes:
        _change(values, change)
    for section in values:
        if section not in SECTIONS:
            raise unknown_name("section", section, SECTIONS, source.place(section))
    for section in ("model", "objective"):
        if not isinstance(values.get(section), dict):
            raise ConfigError(f"{name}: there is no section [{section}]; a recipe needs one")
    return Recipe(
        model=values["model"],
        objective=values["objective"],
        data=_data(values.get("data"), source),
        places={section: source.place(section) for section in ("model", "objective")},
        **{
            section: read_section(cls, values.get(section, {}), source.place(section))
            for section, cls in _CONFIGS.items()
        },
    )


def _data(values: Any, source: Source) -> tuple[SourceConfig, ...]:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{source.name}: there is no [[data]]; a recipe needs one or more sources")
    read = [read_section(SourceConfig, own, source.place("data", number)) for number, own in enumerate(values)]
    labels = [own.label for own in read]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"{source.name}: two sources of data are called {label!r}; give one another name")
    return tuple(read)


def _change(values: dict[str, Any], change: str) -> None:
    """Sets one value, as --set does: `section.key=value`, `model.multi.dim=64`, `data.0.path=there`. The value is TOML,
    or text if it cannot be read as such."""
    key, equals, value = change.partition("=")
    *path, name = key.strip().split(".")
    if equals and name and not path and isinstance(value_of(value), dict | list):  # a whole section
        values[name] = value_of(value)
        return
    if not (equals and path and name):
        raise ConfigError(f"--set {change!r} is not of the form section.key=value")
    table: Any = values
    for step in path:
        if isinstance(table, list):
            if not step.isdecimal() or int(step) >= len(table):
                raise ConfigError(f"--set {change!r}: {step!r} is none of the {len(table)} sources, counted from 0")
            table = table[int(step)]
        else:
            table = table.setdefault(step, {})
        if not isinstance(table, dict | list):
            raise ConfigError(f"--set {change!r}: {step!r} is a value, not a section")
    if isinstance(table, list):
        raise ConfigError(f"--set {change!r}: say which of the sources, as in data.0.{name}=...")
    table[name] = value_of(value)
