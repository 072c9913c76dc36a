"""The work of `plait eval` on one set and index: search in every mode, keep what was found, measure it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import plait
from plait import Index
from plait.cli.errors import StoppedError, say
from plait.cli.keeping import cache_folder
from plait.cli.progress import progress
from plait.cli.results import Result
from plait.errors import ConfigError
from plait.evaluate import Dataset, DatasetRun, measure_each, rank_dataset
from plait.search.plan import CUR_MODES, MODES

if TYPE_CHECKING:
    from plait.rerank.reranker import Reranker

EVERY = ["every"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is the same for all sets and indexes."""

    modes: list[str]  # or ["every"], which leaves out those that an index does not have
    measures: list[str]
    k: int
    drop_self: bool
    fresh: bool
    keep: Path | None
    model: str | None
    threads: int | None
    options: Callable[[str], Mapping[str, object] | None] = dict[str, dict[str, object]]().get  # settings of a mode
    rerank: Reranker | None = None

    def __post_init__(self) -> None:
        for mode in self.modes:  # before an index is built for nothing
            if mode not in (*MODES, *CUR_MODES) and self.modes != EVERY:
                raise ConfigError(
                    f"there is no mode {mode!r}; choose one of {', '.join([*MODES, *CUR_MODES])}, or every"
                )


def writable(folder: Path | None) -> Path | None:
    """The folder to keep what is found in; None, and a note, if it was not asked for and cannot be written."""
    wanted = cache_folder("eval") if folder is None else folder
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if folder is not None:
            raise ConfigError(f"cannot keep results in {folder}: {error.strerror}") from None
        say(f"results are not kept for the next time: {error}")
        return None
    return wanted


def measured(judged: Dataset, name: str, path: Path, work: Work) -> list[Result]:
    """The results of an index in all modes."""
    results = []
    with plait.open(path, model=work.model, n_threads=work.threads, read_only=True) as opened:
        for mode in MODES if work.modes == EVERY else dict.fromkeys(work.modes):
            try:
                found = _ranked(opened, judged, mode, work)
            except ConfigError as error:
                if work.modes != EVERY:
                    raise
                say(f"{mode} is left out: {error}")
                continue
            each = measure_each(found.run, judged.qrels, work.measures)
            results.append(Result(judged, name, path, mode, found, each))
    return results


def _ranked(opened: Index, judged: Dataset, mode: str, work: Work) -> DatasetRun:
    with progress(f"{judged.name} {mode}", "queries", total=len(judged.queries)) as update:
        try:
            return rank_dataset(
                opened,
                judged,
                mode,
                work.k,
                options=work.options(mode),
                rerank=work.rerank,
                drop_self=work.drop_self,
                cache=work.keep,
                fresh=work.fresh,
                on_progress=lambda done: update(done, done),
            )
        except KeyboardInterrupt:
            kept = "what was found is kept. Run the same command again to go on"
            raise StoppedError("stopped" if work.keep is None else f"stopped; {kept}") from None
