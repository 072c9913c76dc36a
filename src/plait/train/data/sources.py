"""Sources of a recipe, by kind: each names a reader and what it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plait.errors import ConfigError, InputError
from plait.evaluate.datasets import load_beir
from plait.readers import documents_from
from plait.train.data.example import Example, Passage
from plait.train.data.nway import found, read_columns, read_flag, read_nway, read_triples
from plait.train.data.text_store import store_of, titled


def read_beir(folder: Path, split: str = "train") -> Iterator[Example]:
    """A query of the split with the documents judged above 0; those judged 0 are negatives. Queries that have no
    positive are passed over; an id without a text is an error."""
    beir = load_beir(folder, split)
    if beir.corpus is None:
        raise InputError(f"there is no {folder / 'corpus.jsonl'} (nor corpus.jsonl.gz); training needs the texts")
    with store_of(beir.corpus) as corpus:
        for query, text in beir.queries.items():
            judged = beir.qrels[query]
            positives, negatives = (
                [id for id, relevance in judged.items() if (relevance > 0) == relevant] for relevant in (True, False)
            )
            if not positives:
                continue
            try:
                texts = found("document", corpus, positives + negatives)
            except InputError as error:
                raise InputError(f"{beir.corpus}: {error}, though query {query!r} is judged on it") from None
            passages = [Passage(text, id) for id, text in zip(positives + negatives, texts, strict=True)]
            yield Example(text, tuple(passages[: len(positives)]), tuple(passages[len(positives) :]))


# An end of a sentence: a mark and white space after it, or a full stop of a script that has no spaces.
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
_SHORTEST = 20  # characters; shorter "sentences" are headings and abbreviations, which pair with nothing


def read_texts(source: Path) -> Iterator[Example]:
    """Every document of a source, title first, as a query without passages."""
    for document in documents_from([source]):
        yield Example(titled(document.title, document.text))


def read_titles(source: Path) -> Iterator[Example]:
    """The title of each document asks for its text; documents without a title are passed over."""
    for document in documents_from([source]):
        if document.title.strip():
            yield Example(document.title, (Passage(document.text, document.id),))


def read_adjacent(source: Path) -> Iterator[Example]:
    """Each sentence of a document asks for the next one; every sentence is in one pair at most."""
    for document in documents_from([source]):
        sentences = [part.strip() for part in _SENTENCE_END.split(document.text)]
        sentences = [sentence for sentence in sentences if len(sentence) >= _SHORTEST]
        for first, second in zip(sentences[::2], sentences[1::2], strict=False):
            yield Example(first, (Passage(second),))


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
