"""The sources of a recipe: one reader for each kind. Readers of BEIR folders and of texts without labels are here;
those of lists of passages are in nway.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plait.encode.chunking import with_title
from plait.errors import ConfigError, InputError
from plait.evaluate.datasets import load_beir
from plait.readers import documents_from
from plait.train.data.example import Example, Passage
from plait.train.data.nway import read_columns, read_flag, read_nway, read_triples, texts_of_ids
from plait.train.data.text_store import load_texts

# The end of a sentence: a mark and white space after it, or a full stop of a script without spaces.
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
MIN_SENTENCE_LENGTH = 20  # characters; shorter "sentences" are mostly headings and abbreviations


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """One source of training data."""

    path: str  # a file, or a folder for kinds that read folders
    kind: str = "beir"
    name: str = ""  # default: the last part of the path; a batch holds examples of one source
    split: str = "train"  # of a BEIR folder
    queries: str = ""  # the file of the queries' texts, for triples and nway with ids
    collection: str = ""  # the file of the passages' texts, for triples and nway with ids
    weight: float = 1.0  # passes over the source in one epoch; 0.5 is a half of it, another half in the next epoch
    limit: int = 0  # examples to read; 0: all
    licence: str = ""  # of the data, in words, for the page of the trained model

    def __post_init__(self) -> None:
        if self.kind not in READERS:
            raise ConfigError(f"kind is {self.kind!r}; choose one of {', '.join(READERS)}")
        if not self.path:
            raise ConfigError("path is empty; name the file or the folder to train on")
        if self.weight <= 0:
            raise ConfigError(f"weight is {self.weight}; it must be above 0, or leave the source out")
        if self.limit < 0:
            raise ConfigError(f"limit is {self.limit}; it must be 0 (all) or more")

    @property
    def label(self) -> str:
        return self.name or Path(self.path).stem.removesuffix(".jsonl")


def read_source(source: SourceConfig) -> Iterator[Example]:
    """The examples of a source, one at a time."""
    for number, example in enumerate(READERS[source.kind](source)):
        if source.limit and number >= source.limit:
            return
        yield replace(example, source=source.label)


def read_beir(folder: Path, split: str = "train") -> Iterator[Example]:
    """Each query of the split with its judged documents: above 0 is positive, 0 is negative. A query without positives
    is skipped; an id without a text is an error."""
    beir = load_beir(folder, split)
    if beir.corpus is None:
        raise InputError(f"there is no {folder / 'corpus.jsonl'} (nor corpus.jsonl.gz); training needs the texts")
    with load_texts(beir.corpus) as corpus:
        for query, text in beir.queries.items():
            judged = beir.qrels[query]
            positives, negatives = (
                [id for id, relevance in judged.items() if (relevance > 0) == relevant] for relevant in (True, False)
            )
            if not positives:
                continue
            try:
                texts = texts_of_ids("document", corpus, positives + negatives)
            except InputError as error:
                raise InputError(f"{beir.corpus}: {error}, but the qrels of query {query!r} name it") from None
            passages = [Passage(text, id) for id, text in zip(positives + negatives, texts, strict=True)]
            yield Example(text, tuple(passages[: len(positives)]), tuple(passages[len(positives) :]))


def read_texts(source: Path) -> Iterator[Example]:
    """Every document, title first, as a query without passages: for RetroMAE."""
    for document in documents_from([source]):
        yield Example(with_title(document.title, document.text))


def read_titles(source: Path) -> Iterator[Example]:
    """The title of each document as a query, its text as the positive; documents without a title are skipped."""
    for document in documents_from([source]):
        if document.title.strip():
            yield Example(document.title, (Passage(document.text, document.id),))


def read_adjacent(source: Path) -> Iterator[Example]:
    """A sentence as a query, the next sentence as the positive; each sentence is in one pair at most."""
    for document in documents_from([source]):
        sentences = [part.strip() for part in _SENTENCE_END.split(document.text)]
        sentences = [sentence for sentence in sentences if len(sentence) >= MIN_SENTENCE_LENGTH]
        for first, second in zip(sentences[::2], sentences[1::2], strict=False):
            yield Example(first, (Passage(second),))


def _id_files(source: SourceConfig) -> tuple[Path, Path | None, Path | None]:
    queries, collection = (Path(name) if name else None for name in (source.queries, source.collection))
    return Path(source.path), queries, collection


READERS: dict[str, Callable[[SourceConfig], Iterator[Example]]] = {
    "beir": lambda source: read_beir(Path(source.path), source.split),
    "triples": lambda source: read_triples(*_id_files(source)),
    "nway": lambda source: read_nway(*_id_files(source)),
    "flag": lambda source: read_flag(Path(source.path)),
    "columns": lambda source: read_columns(Path(source.path)),
    "texts": lambda source: read_texts(Path(source.path)),
    "titles": lambda source: read_titles(Path(source.path)),
    "adjacent": lambda source: read_adjacent(Path(source.path)),
}
