"""Sources of a recipe, by kind: each names a reader and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plait.errors import ConfigError
from plait.train.data.example import Example
from plait.train.data.judged import read_beir
from plait.train.data.nway import read_columns, read_flag, read_nway, read_triples
from plait.train.data.unlabelled import read_adjacent, read_texts, read_titles


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """One source of training data."""

    path: str  # a file, or a folder for kinds that read folders
    kind: str = "beir"
    name: str = ""  # by default, the last part of the path; batches hold one source each
    split: str = "train"  # of a BEIR folder
    queries: str = ""  # texts of query ids, for triples and nway
    collection: str = ""  # texts of passage ids, for triples and nway
    weight: float = 1.0  # how many times an epoch goes through it; 0.5 is a half, another one each epoch
    limit: int = 0  # examples to read; 0 is all
    licence: str = ""  # of the data, in words, for the page of the model that is trained on it

    def __post_init__(self) -> None:
        if self.kind not in READERS:
            raise ConfigError(f"there is no kind of data {self.kind!r}; choose one of {', '.join(READERS)}")
        if not self.path:
            raise ConfigError("path is empty; name the file or the folder to train on")
        if self.weight <= 0:
            raise ConfigError(f"weight is {self.weight}; it must be above 0, or leave the source out")
        if self.limit < 0:
            raise ConfigError(f"limit is {self.limit}; it must be 0 (all) or more")

    @property
    def label(self) -> str:
        return self.name or Path(self.path).stem.removesuffix(".jsonl")


def _lookup(source: SourceConfig) -> tuple[Path, Path | None, Path | None]:
    queries, collection = (Path(name) if name else None for name in (source.queries, source.collection))
    return Path(source.path), queries, collection


READERS: dict[str, Callable[[SourceConfig], Iterator[Example]]] = {
    "beir": lambda source: read_beir(Path(source.path), source.split),
    "triples": lambda source: read_triples(*_lookup(source)),
    "nway": lambda source: read_nway(*_lookup(source)),
    "flag": lambda source: read_flag(Path(source.path)),
    "columns": lambda source: read_columns(Path(source.path)),
    "texts": lambda source: read_texts(Path(source.path)),
    "titles": lambda source: read_titles(Path(source.path)),
    "adjacent": lambda source: read_adjacent(Path(source.path)),
}


def read_source(source: SourceConfig) -> Iterator[Example]:
    """The examples of a source, as they are read."""
    for number, example in enumerate(READERS[source.kind](source)):
        if source.limit and number >= source.limit:
            return
        yield replace(example, source=source.label)
