"""Tuning of multi-vector search: the fastest probing parameters that reach a recall, measured on index and machine.

Half of the queries choose: exhaustive search gives their true answers, `stages` the recall and the time of every
combination of parameters. The other half tests the choice with real searches; a choice that misses the recall there is
replaced by one with more. `tune_index` finds the queries and saves the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import CodedItems
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import Encoder
from plait.errors import ConfigError, InputError, QueryError
from plait.search.filtering import SegmentRows
from plait.search.multivector.passages import ExactMulti, passages_for
from plait.search.multivector.plait import MIN_PROBED, PlaitSearch, ProbedMulti
from plait.search.multivector.probe import ResolvedProbe
from plait.search.multivector.segment_group import SegmentGroup, segment_groups
from plait.search.query import QueryBatch
from plait.search.trace import Trace
from plait.storage.saved_settings import TunedParams
from plait.storage.store import Snapshot, Store
from plait.tune.stages import ProbeGrid, count_found, expected_seconds
from plait.tune.synthetic_queries import MIN_QUERIES, NO_SOURCE, Queries, default_n_queries, tuning_queries

MAX_ATTEMPTS = 10
MIN_RECALL_STEP = 0.003  # between two attempts

OnProgress = Callable[[str, int, int], None]  # the step, how much of it is done, of how much


def tune_index(
    store: Store,
    encoder: Callable[[], Encoder],
    goal: Goal,
    *,
    queries: Sequence[str] | Embeddings | Queries | None = None,
    n_queries: int | None = None,
    seed: int = 0,
    n_threads: int = 1,
    on_progress: OnProgress | None = None,
) -> Tuned:
    """Chooses parameters for the newest commit and saves them. The write lock is held, so that the commit stays."""
    if n_queries is not None and (type(n_queries) is not int or n_queries < MIN_QUERIES):
        raise ConfigError(f"n_queries is {n_queries!r}; at least {MIN_QUERIES} are needed to measure anything")
    if isinstance(queries, str):
        raise QueryError("tune takes a sequence of queries; put a single one in a list")
    if store.spec.multi is None:
        raise ConfigError("the index has no multi vectors; the other kinds of search have nothing to tune")
    with store.writer() as writer, store.snapshot() as snapshot:
        chosen = Queries("rows", [], np.zeros(0, np.int64))
        if probed_segment(snapshot) is not None:
            n_queries = n_queries or default_n_queries(snapshot)
            chosen = tuning_queries(snapshot, store.fingerprint, encoder, queries, n_queries, seed)
        codes_recall = snapshot.codes_recall
        tuner = Tuner(snapshot, chosen, goal, codes_recall=codes_recall, n_threads=n_threads, on_progress=on_progress)
        tuned = tuner.run()
        if tuned.plan is None:
            return tuned
        writer.save_tuned_params(tuned.plan)
        return replace(tuned, saved=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """An option of `plait compact` that raises the recall of the codes, and the bytes that the index grows by."""

    command: str
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The result of tuning. Without a plan every passage is scored anyway, or the recall is out of reach."""

    plan: TunedParams | None
    target_recall: float
    reached: bool
    predicted: float | None = None  # recall against the codes, on the queries that chose the plan
    codes_recall: float | None = None
    remedies: tuple[Remedy, ...] = ()
    note: str = ""
    saved: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The recall that a search is to reach."""

    recall: float
    k: int = 10
    of: str | None = None  # "vectors", "codes", or None: vectors if the recall of the codes was measured
    best: bool = False  # save the best parameters if the recall is out of reach

    def __post_init__(self) -> None:
        if not isinstance(self.recall, int | float) or not 0 < self.recall <= 1:
            raise ConfigError(f"the target recall is {self.recall!r}; it must be above 0 and at most 1, such as 0.9")
        if type(self.k) is not int or self.k < 1:
            raise ConfigError(f"k is {self.k!r}; it must be a whole number of at least 1")
        if self.of not in (None, "vectors", "codes"):
            raise ConfigError(f"recall cannot be measured of {self.of!r}; choose 'vectors' or 'codes'")


@dataclass(frozen=True, slots=True, eq=False)
class _Truth:
    docs: NDArray[np.int64]
    rows: NDArray[np.int64]  # the best passage of each
    seconds: float


class Tuner:
    """One tuning of one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        queries: Queries,
        goal: Goal,
        *,
        codes_recall: float | None = None,
        n_threads: int = 1,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._snapshot, self._queries, self._goal, self._n_threads = snapshot, queries, goal, n_threads
        self._on_progress = on_progress or (lambda _what, _done, _total: None)
        self._of_vectors = codes_recall is not None and goal.of != "codes"
        if goal.of == "vectors" and codes_recall is None:
            raise ConfigError(
                "the recall of this index's codes was not measured, and the vectors are gone; tune for a recall of the "
                "codes, or build the index again and compact it"
            )
        self._codes_recall = codes_recall

    def run(self) -> Tuned:
        start = time.perf_counter()
        largest = probed_segment(self._snapshot)
        if largest is None:
            note = "every passage is scored already: the index is small, or not compacted; there is nothing to tune"
            return Tuned(plan=None, target_recall=self._goal.recall, reached=True, note=note)
        if len(self._queries) < MIN_QUERIES:
            raise InputError(f"{len(self._queries)} queries are too few to tune with; give {MIN_QUERIES} or more")
        needed = self._goal.recall / (self._codes_recall or 1.0) if self._of_vectors else self._goal.recall
        reached = needed <= 1
        if not reached and not self._goal.best:
            return self._unreached(largest)
        needed = min(needed, 1.0)
        choosing, testing = self._queries.select(slice(0, None, 2)), self._queries.select(slice(1, None, 2))
        truths = [self._truth(choosing, number) for number in range(len(choosing))]
        grid = ProbeGrid.of(_coded(largest), self._n_first(choosing))
        recalls = self._recalls(largest, choosing, truths, grid)
        self._on_progress("timing", 0, 1)
        seconds = expected_seconds(choosing.rows, _group_of(self._snapshot, largest), grid, int(grid.n_code_scored[0]))
        test_truths = [self._truth(testing, number) for number in range(len(testing))]
        exhaustive = float(np.median([truth.seconds for truth in truths + test_truths]))
        plan, predicted = self._choose(testing, test_truths, grid, recalls, seconds, exhaustive, needed)
        return Tuned(
            plan=plan,
            target_recall=self._goal.recall,
            reached=reached,
            predicted=predicted,
            codes_recall=self._codes_recall,
            remedies=() if reached else remedies(_coded(largest)),
            seconds=time.perf_counter() - start,
        )

    def _unreached(self, largest: SegmentRows) -> Tuned:
        return Tuned(
            plan=None,
            target_recall=self._goal.recall,
            reached=False,
            codes_recall=self._codes_recall,
            remedies=remedies(_coded(largest)),
        )

    def _n_first(self, queries: Queries) -> int:
        """The passages that a search asks a group for."""
        return passages_for(self._goal.k + int(np.any(queries.sources != NO_SOURCE)), self._snapshot)

    def _truth(self, queries: Queries, number: int) -> _Truth:
        self._on_progress("true answers", number, len(queries))
        docs, rows, seconds = self._search(queries, number, ExactMulti(n_threads=self._n_threads))
        return _Truth(docs, rows, seconds)

    def _search(
        self, queries: Queries, number: int, retriever: ExactMulti | ProbedMulti
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], float]:
        """Documents without the query's source, their passages, and seconds."""
        rows, source = queries.rows[number], queries.sources[number]
        batch = QueryBatch([""], Embeddings(multi=MultiVectors(rows, np.array([0, len(rows)], np.int64))))
        k = self._goal.k + int(source != NO_SOURCE)
        start = time.perf_counter()
        ranking = retriever.retrieve(self._snapshot, batch, k, None, Trace())[0]
        seconds = time.perf_counter() - start
        others = ranking.docs != source
        return ranking.docs[others][: self._goal.k], ranking.rows[others][: self._goal.k], seconds

    def _recalls(
        self, largest: SegmentRows, queries: Queries, truths: list[_Truth], grid: ProbeGrid
    ) -> NDArray[np.float64]:
        """The mean recall at every position of the grid. True answers in other segments count as found: those segments
        are small, and mostly scored whole."""
        coded = SegmentGroup([largest]).coded
        total, n_counted = np.zeros(grid.shape), 0
        for number, truth in enumerate(truths):
            self._on_progress("settings", number, len(truths))
            if not len(truth.rows):
                continue
            rows = truth.rows - largest.base
            rows = rows[(rows >= 0) & (rows < largest.segment.n_rows)]
            n_found = count_found(PlaitSearch(queries.rows[number], coded), rows, grid)
            total += (n_found + (len(truth.rows) - len(rows))) / len(truth.rows)
            n_counted += 1
        return total / max(n_counted, 1)

    def _choose(
        self,
        queries: Queries,
        truths: list[_Truth],
        grid: ProbeGrid,
        recalls: NDArray[np.float64],
        seconds: NDArray[np.float64],
        exhaustive: float,
        needed: float,
    ) -> tuple[TunedParams, float]:
        """The fastest parameters that reach the recall in real searches, and the recall predicted for them."""
        aim = needed
        for _ in range(MAX_ATTEMPTS):
            candidates = np.where((recalls >= aim) & (seconds < exhaustive), seconds, np.inf)
            position = np.unravel_index(int(np.argmin(candidates)), candidates.shape)
            if not np.isfinite(candidates[position]):
                break
            probe = grid.at(position)
            recall, median = self._measure(queries, truths, ProbedMulti(probe, n_threads=self._n_threads))
            if recall >= needed:
                return self._tuned_params(probe, recall, median, exhaustive), float(recalls[position])
            aim = float(recalls[position]) + max(needed - recall, MIN_RECALL_STEP)
        probe = replace(grid.at([length - 1 for length in grid.shape]), exhaustive=True)
        return self._tuned_params(probe, 1.0, exhaustive, exhaustive), 1.0

    def _measure(self, queries: Queries, truths: list[_Truth], retriever: ProbedMulti) -> tuple[float, float]:
        """The recall against the codes and the median seconds of real searches."""
        recalls, seconds = [], []
        for number, truth in enumerate(truths):
            self._on_progress("judging", number, len(truths))
            docs, _, took = self._search(queries, number, retriever)
            seconds.append(took)
            if len(truth.docs):
                recalls.append(len(np.intersect1d(docs, truth.docs)) / len(truth.docs))
        return float(np.mean(recalls)) if recalls else 1.0, float(np.median(seconds))

    def _tuned_params(
        self, probe: ResolvedProbe, recall_in_codes: float, median: float, exhaustive: float
    ) -> TunedParams:
        codes_recall = self._codes_recall if self._of_vectors and self._codes_recall is not None else 1.0
        return TunedParams(
            n_probe=probe.n_probe,
            n_candidates=probe.n_candidates,
            n_code_scored=probe.n_code_scored,
            n_rescored=probe.n_rescored,
            exhaustive=probe.exhaustive,
            k=self._goal.k,
            target_recall=float(self._goal.recall),
            recall_of="vectors" if self._of_vectors else "codes",
            recall=round(recall_in_codes * codes_recall, 4),
            recall_in_codes=round(recall_in_codes, 4),
            codes_recall=self._codes_recall,
            median_ms=round(1000 * median, 3),
            exhaustive_ms=round(1000 * exhaustive, 3),
            n_queries=len(self._queries),
            queries=self._queries.kind,
            n_passages=self._snapshot.n_rows,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def probed_segment(snapshot: Snapshot) -> SegmentRows | None:
    """The largest segment that is searched by probing; None if there is none."""
    probed = [
        part
        for group in segment_groups(snapshot)
        for part in group.parts
        if part.segment.coded is not None and len(part) > MIN_PROBED
    ]
    return max(probed, key=len, default=None)


def _group_of(snapshot: Snapshot, part: SegmentRows) -> SegmentGroup:
    return next(group for group in segment_groups(snapshot) if part in group.parts)


def remedies(items: CodedItems) -> tuple[Remedy, ...]:
    """What could be stored beside the codes, and its size. More bits need the original vectors."""
    if items.codes_8bit is not None:
        return ()
    n_vectors, dim, bits = len(items.rows.codes), items.codec.dim, items.codec.bits
    more = [
        Remedy(command=f"--bits {other}", n_bytes=n_vectors * dim * (other - bits) // 8)
        for other in (2, 4, 8)
        if other > bits
    ]
    return (*more, Remedy(command="--keep-8bit", n_bytes=n_vectors * (dim + 1)))


def _coded(part: SegmentRows) -> CodedItems:
    assert part.segment.coded is not None
    return part.segment.coded
