"""A recipe: everything that a run depends on, in one file of TOML. It is read and checked before anything is loaded,
and a copy is kept with the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from plait.errors import ConfigError
from plait.train.batching.config import BatchingConfig
from plait.train.data.sources import SourceConfig
from plait.train.mining.config import MiningConfig
from plait.train.optimiser import OptimiserConfig
from plait.train.toml import Place, Source, read_section, toml_of, unknown_name, value_of

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
