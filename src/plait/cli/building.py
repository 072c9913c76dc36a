"""Indexes of sets, built when they are first asked for: one in a folder for each set, with a note beside it of which
corpus it holds and whether it is complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plait.cli.errors import StoppedError, say
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.evaluate import Dataset
    from plait.ingest import AddProgress


def built(sets: Sequence[Dataset], folder: Path, model: str | None, threads: int | None) -> list[Path]:
    """The index of each set, in `folder`; what is missing is built, what was stopped is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    names = short_names(sets)
    return [_built(judged, folder / name, model, threads) for judged, name in zip(sets, names, strict=True)]


def short_names(sets: Sequence[Dataset]) -> list[str]:
    """A name for each set that fits into the name of a file. Sets of the same name, such as xquad/en and afriqa/en,
    have that of their folder before it."""
    names = [judged.name for judged in sets]
    return [
        name if len({str(other.path) for other in sets if other.name == name}) == 1 else _longer(judged)
        for judged, name in zip(sets, names, strict=True)
    ]


def _longer(judged: Dataset) -> str:
    return f"{Path(judged.path).resolve().parent.name}-{judged.name}"


def _built(judged: Dataset, index: Path, model: str | None, threads: int | None) -> Path:
    note = index.with_name(f"{index.name}.json")
    corpus = _corpus_of(judged)
    before = json.loads(note.read_text(encoding="utf-8")) if note.exists() else None
    if before is None and index.exists():
        raise ConfigError(f"{index} was not made by plait eval: there is no {note}; choose another folder")
    if before is not None and before["corpus"] != corpus:
        raise ConfigError(
            f"{index} holds the corpus {before['corpus']}, and not {corpus}; choose another folder for --indexes, or "
            f"remove {index} and {note}"
        )
    if before is None or not before["complete"]:
        note.write_text(json.dumps({"corpus": corpus, "complete": False}), encoding="utf-8")
        _build(judged, index, model, threads)
        note.write_text(json.dumps({"corpus": corpus, "complete": True}), encoding="utf-8")
    return index


def _corpus_of(judged: Dataset) -> list[object]:
    """Which corpus it is, and which state of it."""
    if judged.corpus is None:
        return [str(judged.path)]
    facts = judged.corpus.stat()
    return [str(judged.corpus.resolve()), facts.st_size, facts.st_mtime_ns]


def _build(judged: Dataset, index: Path, model: str | None, threads: int | None) -> None:
    import plait
    from plait.cli.progress import progress
    from plait.readers import SourceReport

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
            raise StoppedError(f"stopped while {index} was built; run the same command again to go on") from None
    say(f"{index}: {added.added + added.updated + added.unchanged:,} documents in {added.seconds:.1f} s")
    for line in read.notes():
        say(line)
