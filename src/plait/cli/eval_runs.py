"""The work of `plait eval`: an index for each dataset, and the rankings and measures of an index in every mode."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import plait
from plait import Index
from plait.checks import parse_json
from plait.cli.errors import StoppedError, say
from plait.cli.progress import progress
from plait.errors import ConfigError
from plait.evaluate import Dataset, DatasetRun, measure_each, rank_dataset
from plait.readers import SourceReport
from plait.search.modes import BUILT_IN, mode_names
from plait.search.params import Params

if TYPE_CHECKING:
    from plait.ingest import AddProgress
    from plait.rerank.reranker import Reranker

EVERY_MODE = ["every"]


# -- indexes of datasets


def build_indexes(sets: Sequence[Dataset], folder: Path, model: str | None, threads: int | None) -> list[Path]:
    """The index of each dataset in `folder`. A missing index is built, an incomplete one is finished.

    A JSON file beside each index records its corpus and whether it is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = short_names(sets)
    return [_build_if_needed(judged, folder / name, model, threads) for judged, name in zip(sets, names, strict=True)]


def short_names(sets: Sequence[Dataset]) -> list[str]:
    """A file name for each dataset. Datasets with the same name, such as xquad/en and afriqa/en, get the name of their
    parent folder as a prefix."""
    names = [judged.name for judged in sets]
    return [
        name if len({str(other.path) for other in sets if other.name == name}) == 1 else _prefixed_name(judged)
        for judged, name in zip(sets, names, strict=True)
    ]


def _prefixed_name(judged: Dataset) -> str:
    return f"{Path(judged.path).resolve().parent.name}-{judged.name}"


def _build_if_needed(judged: Dataset, index: Path, model: str | None, threads: int | None) -> Path:
    record_file = index.with_name(f"{index.name}.json")
    corpus = _corpus_version(judged)
    record = parse_json(record_file.read_text(encoding="utf-8")) if record_file.exists() else None
    if record is None and index.exists():
        raise ConfigError(f"{index} was not made by plait eval: there is no {record_file}; choose another folder")
    if record is not None and record["corpus"] != corpus:
        raise ConfigError(
            f"{index} holds the corpus {record['corpus']}, not {corpus}; choose another folder for --indexes, or "
            f"remove {index} and {record_file}"
        )
    if record is None or not record["complete"]:
        record_file.write_text(json.dumps({"corpus": corpus, "complete": False}), encoding="utf-8")
        _build(judged, index, model, threads)
        record_file.write_text(json.dumps({"corpus": corpus, "complete": True}), encoding="utf-8")
    return index


def _corpus_version(judged: Dataset) -> list[object]:
    """Path, size and time of the corpus file; the name of a dataset without one."""
    if judged.corpus is None:
        return [str(judged.path)]
    facts = judged.corpus.stat()
    return [str(judged.corpus.resolve()), facts.st_size, facts.st_mtime_ns]


def _build(judged: Dataset, index: Path, model: str | None, threads: int | None) -> None:
    read = SourceReport()
    documents = judged.documents(read)
    total = judged.corpus.stat().st_size if judged.corpus is not None else None
    with (
        plait.open(index, create=True, model=model, n_threads=threads) as opened,
        progress(f"indexing {judged.name}", "documents", total=total) as update,
    ):

        def on_progress(done: AddProgress) -> None:
            update(read.bytes_read * done.documents // max(1, read.documents), done.documents)

        try:
            added = opened.add(documents, on_progress=on_progress)
        except KeyboardInterrupt:
            raise StoppedError(f"stopped while building {index}; run the same command again to continue") from None
    say(f"{index}: {added.added + added.updated + added.unchanged:,} documents in {added.seconds:.1f} s")
    for line in read.notes():
        say(line)


# -- rankings and measures


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """What is the same for all datasets and indexes."""

    modes: list[str]  # or EVERY_MODE: all modes, without those that an index does not support
    measures: list[str]
    k: int
    drop_self: bool
    fresh: bool
    cache: Path | None
    model: str | None
    threads: int | None
    params: Callable[[str], Params | None] = lambda _mode: None  # by mode
    rerank: Reranker | None = None

    def __post_init__(self) -> None:
        for mode in self.modes:  # checked now: building an index first would waste time
            if mode not in mode_names() and self.modes != EVERY_MODE:
                raise ConfigError(f"there is no mode {mode!r}; choose one of {', '.join(mode_names())}, or every")


@dataclass(frozen=True, slots=True)
class Result:
    """The measures of one dataset, index and mode."""

    judged: Dataset
    name: str  # of the dataset; unique among the results
    index: Path
    mode: str
    ranked: DatasetRun
    per_query: dict[str, dict[str, float]]  # by measure and query

    @property
    def means(self) -> dict[str, float]:
        return {name: sum(values.values()) / len(values) for name, values in self.per_query.items()}


def cache_folder(folder: Path | None) -> Path | None:
    """The folder for rankings: the given one, or plait/eval in $XDG_CACHE_HOME or ~/.cache. None, with a note, if the
    default folder cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    wanted = folder or (Path(base) if base else Path.home() / ".cache") / "plait" / "eval"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if folder is not None:
            raise ConfigError(f"cannot keep rankings in {folder}: {error.strerror}") from None
        say(f"rankings are not kept for the next run: {error}")
        return None
    return wanted


def evaluate_index(judged: Dataset, name: str, path: Path, config: EvalConfig) -> list[Result]:
    """The results of one index in all modes."""
    results = []
    with plait.open(path, model=config.model, n_threads=config.threads, read_only=True) as opened:
        for mode in BUILT_IN if config.modes == EVERY_MODE else dict.fromkeys(config.modes):
            try:
                ranked = _ranked(opened, judged, mode, config)
            except ConfigError as error:
                if config.modes != EVERY_MODE:
                    raise
                say(f"{mode} is left out: {error}")
                continue
            per_query = measure_each(ranked.run, judged.qrels, config.measures)
            results.append(Result(judged, name, path, mode, ranked, per_query))
    return results


def _ranked(opened: Index, judged: Dataset, mode: str, config: EvalConfig) -> DatasetRun:
    with progress(f"{judged.name} {mode}", "queries", total=len(judged.queries)) as update:
        try:
            return rank_dataset(
                opened,
                judged,
                mode,
                config.k,
                params=config.params(mode),
                rerank=config.rerank,
                drop_self=config.drop_self,
                cache=config.cache,
                fresh=config.fresh,
                on_progress=lambda done: update(done, done),
            )
        except KeyboardInterrupt:
            resume = "; finished rankings are kept. Run the same command again to continue"
            raise StoppedError("stopped" if config.cache is None else f"stopped{resume}") from None
