"""A recipe: everything that a run depends on, in one TOML file. It is read and checked before anything is loaded, and a
copy is saved with the run. An unknown key or a value of the wrong type is an error that names the file and the line."""

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
from plait.train.search_modes import check_mode

PRECISIONS = ("fp32", "bf16")
SYNONYMS = {"objective": "loss", "optimizer": "optimiser", "eval": "evaluation", "dataset": "data"}  # for suggestions

Config = TypeVar("Config")
_HEADER = re.compile(r"^\s*\[+\s*([\w.-]+)\s*\]+")
_KEY = re.compile(r"^\s*([\w-]+)\s*=")
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """Evaluation on a dev set during training: a small corpus is indexed and searched."""

    data: str = ""  # a BEIR folder; empty: no evaluation
    split: str = "dev"
    every: int = 100  # steps between evaluations; there is one after the last step as well
    measure: str = "nDCG@10"
    mode: str = ""  # the search mode; empty: xtr for the loss xtr, the kind of a head trained alone, else hybrid
    n_documents: int = 2000  # size of the corpus: all judged documents, filled up with random others; 0: all
    n_queries: int = 200  # the first queries of the split; 0: all
    k: int = 100

    def __post_init__(self) -> None:
        if self.every < 1 or self.k < 1:
            raise ConfigError(f"every is {self.every} and k is {self.k}; both must be at least 1")
        if self.mode:
            check_mode(self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of the run itself."""

    seed: int = 0
    precision: str = "fp32"
    threads: int = 0  # of torch; 0 keeps torch's choice. The last digits of results may depend on it
    save_every: int = 200  # steps between checkpoints; a killed run resumes from the last one
    cpu: bool = False  # train on the CPU even if there is a GPU

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision is {self.precision!r}; choose one of {', '.join(PRECISIONS)}")
        if self.save_every < 1 or self.threads < 0 or self.seed < 0:
            raise ConfigError(
                f"save_every is {self.save_every}, threads is {self.threads}, seed is {self.seed}; the first must be "
                f"at least 1 and the others 0 or more"
            )


@dataclass(frozen=True, slots=True)
class SectionLocation:
    """Where a section is in its file, for error messages."""

    file: str
    section: str
    line: int | None  # of the header
    lines: Mapping[str, int]  # of the keys

    def where(self, key: str) -> str:
        """The location of a key; a key without a line was set from outside (--set)."""
        line = self.lines.get(key)
        return f"{self.file}, line {line}, [{self.section}]" if line else f"{self.file}, [{self.section}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All sections. The values of `model` and `loss` depend on the kind of model; train/build.py checks them."""

    model: Mapping[str, Any]
    loss: Mapping[str, Any]
    data: tuple[SourceConfig, ...]
    mining: MiningConfig = field(default_factory=MiningConfig)
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    run: RunConfig = field(default_factory=RunConfig)
    locations: Mapping[str, SectionLocation] = field(default_factory=dict, compare=False, repr=False)

    def location(self, section: str) -> SectionLocation:
        return self.locations.get(section) or SectionLocation("the recipe", section, None, {})

    def toml(self) -> str:
        """The recipe as TOML, defaults written out."""
        return _to_toml({name: getattr(self, name) for name in SECTIONS})


SECTIONS = [entry.name for entry in fields(Recipe) if entry.name != "locations"]
_CONFIGS: dict[str, type] = {
    "mining": MiningConfig,
    "batching": BatchingConfig,
    "optimiser": OptimiserConfig,
    "evaluation": EvaluationConfig,
    "run": RunConfig,
}


def read_recipe(path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """The recipe at `path`, with `section.key=value` changes applied; ConfigError names the line of a mistake."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the recipe {path}: {error.strerror or error}") from None
    return parse_recipe(text, name=str(path), changes=changes)


def parse_recipe(text: str, *, name: str = "the recipe", changes: Sequence[str] = ()) -> Recipe:
    file = _TomlText(name, text)
    values = file.values()
    for change in changes:
        _apply_change(values, change)
    for section in values:
        if section not in SECTIONS:
            raise unknown_name("section", section, SECTIONS, file.location(section))
    for section in ("model", "loss"):
        if not isinstance(values.get(section), dict):
            raise ConfigError(f"{name}: the section [{section}] is missing; a recipe needs one")
    return Recipe(
        model=values["model"],
        loss=values["loss"],
        data=_read_sources(values.get("data"), file),
        locations={section: file.location(section) for section in ("model", "loss", "mining", "evaluation")},
        **{
            section: read_section(cls, values.get(section, {}), file.location(section))
            for section, cls in _CONFIGS.items()
        },
    )


def read_section(cls: type[Config], values: Any, location: SectionLocation) -> Config:
    """A config of type `cls` from the values of a section."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{location.file}: [{location.section}] must be a section with keys; got {values!r:.40}")
    hints = get_type_hints(cls)
    assert is_dataclass(cls)
    known = [entry.name for entry in fields(cls)]
    for key in values:
        if key not in known:
            raise unknown_name("key", key, known, location)
    for entry in fields(cls):
        if entry.default is MISSING and entry.default_factory is MISSING and entry.name not in values:
            raise ConfigError(f"{location.where('')}: the key {entry.name!r} is missing; it has no default")
    typed = {key: _typed(value, hints[key], key, location) for key, value in values.items()}
    try:
        return cls(**typed)
    except ConfigError as error:
        named = next((key for key in typed if re.search(rf"\b{re.escape(key)}\b", str(error))), "")
        raise ConfigError(f"{location.where(named)}: {error}") from None


def unknown_name(what: str, name: str, known: Iterable[str], location: SectionLocation) -> ConfigError:
    """The error for a section, key or value that is not one of `known`, with a suggestion."""
    known = list(known)
    near = [SYNONYMS[name]] if SYNONYMS.get(name) in known else difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}"
    at_line = f"{location.file}, line {location.line}" if location.line else location.file
    return ConfigError(f"{location.where(name) if what == 'key' else at_line}: unknown {what} {name!r}; {hint}")


def _typed(value: Any, hint: Any, key: str, location: SectionLocation) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{location.where(key)}: {key!r} must be a list; got {value!r:.40}")
        return tuple(_typed(each, get_args(hint)[0], key, location) for each in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        wanted = _TYPE_NAMES.get(hint, hint.__name__)
        raise ConfigError(f"{location.where(key)}: {key!r} must be {wanted}; got {value!r:.40}")
    return value


def _read_sources(values: Any, file: _TomlText) -> tuple[SourceConfig, ...]:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{file.name}: [[data]] is missing; a recipe needs one or more sources of data")
    sources = [read_section(SourceConfig, one, file.location("data", number)) for number, one in enumerate(values)]
    labels = [source.label for source in sources]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"{file.name}: two sources of data are called {label!r}; set the name of one of them")
    return tuple(sources)


def _apply_change(values: dict[str, Any], change: str) -> None:
    """Sets one value, as --set does: `section.key=value`, `model.multi.dim=64`, `data.0.path=folder`. The value is
    TOML, or text if it is not valid TOML."""
    key, equals, value = change.partition("=")
    *path, name = key.strip().split(".")
    if equals and name and not path and isinstance(_parse_value(value), dict | list):  # a whole section
        values[name] = _parse_value(value)
        return
    if not (equals and path and name):
        raise ConfigError(f"--set {change!r} is not of the form section.key=value")
    table: Any = values
    for step in path:
        if isinstance(table, list):
            if not step.isdecimal() or int(step) >= len(table):
                raise ConfigError(f"--set {change!r}: {step!r} is not one of the {len(table)} sources, counted from 0")
            table = table[int(step)]
        else:
            table = table.setdefault(step, {})
        if not isinstance(table, dict | list):
            raise ConfigError(f"--set {change!r}: {step!r} is a value, not a section")
    if isinstance(table, list):
        raise ConfigError(f"--set {change!r}: say which of the sources, as in data.0.{name}=...")
    table[name] = _parse_value(value)


def _parse_value(text: str) -> Any:
    """A TOML value, or the text itself if it is not valid TOML, so that paths need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


class _TomlText:
    """The text of a TOML file, with the lines of its sections and keys."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self._text = name, text

    def values(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{self.name} is not valid TOML: {error}") from None

    def location(self, section: str, number: int = 0) -> SectionLocation:
        """The location of a section; `number` counts the sections of an array of tables from 0."""
        header: int | None = None
        lines: dict[str, int] = {}
        n_seen = -1
        inside = False
        for line_number, line in enumerate(self._text.splitlines(), 1):
            if match := _HEADER.match(line):
                n_seen += match[1] == section
                inside = match[1] == section and n_seen == number
                header = line_number if inside else header
            elif inside and (key := _KEY.match(line)):
                lines[key[1]] = line_number
        return SectionLocation(self.name, section, header, lines)


def _to_toml(sections: Mapping[str, Any]) -> str:
    """Sections are mappings or configs; a tuple of configs becomes an array of tables."""
    written = []
    for name, section in sections.items():
        if isinstance(section, tuple):
            written += [f"[[{name}]]\n{_table_to_toml(one)}" for one in section]
        else:
            written.append(f"[{name}]\n{_table_to_toml(section)}")
    return "\n".join(written)


def _table_to_toml(section: Any) -> str:
    values = (
        {entry.name: getattr(section, entry.name) for entry in fields(section)}
        if is_dataclass(section)
        else dict(section)
    )
    return "".join(f"{key} = {_value_to_toml(value)}\n" for key, value in values.items() if value is not None)


def _value_to_toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value_to_toml(each) for each in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{key} = {_value_to_toml(each)}" for key, each in value.items() if each is not None)
        return f"{{{', '.join(pairs)}}}"
    return repr(value)
