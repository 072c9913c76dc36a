"""Tuning: the cheapest settings of a probed search that reach a recall, found by measuring on this index and machine.

Half of the queries choose: exhaustive search gives their true answers, `stages` the recall of every setting, `cost` its
time. The other half judges: real searches with the choice, timed. A choice that misses there is stepped up. Nothing is
saved here; `Index.tune` does that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import CodedItems
from plait.embeddings import Embeddings, MultiVectors
from plait.errors import ConfigError, InputError
from plait.search.multivector.query import MultiVectorQuery, ProbeConfig
from plait.search.multivector.retriever import ExactMulti, ProbedMulti
from plait.search.ranking import QueryBatch
from plait.search.trace import Trace
from plait.storage.segment import Segment
from plait.storage.store import Snapshot
from plait.storage.tuned_params import TunedParams
from plait.tune.cost import seconds_of
from plait.tune.stage_recall import Ladder, found_at
from plait.tune.synthetic_queries import NO_SOURCE, Queries

FEWEST_QUERIES = 10
MOST_STEPS = 10
SMALLEST_STEP = 0.003  # of recall, when a choice is stepped up

OnProgress = Callable[[str, int, int], None]  # what is being done, how much of it is, of how much


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What would let the codes reach more, and the bytes that the index would grow by."""

    command: str
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What tuning found. Without a plan every passage is scored anyway, or the recall is out of reach."""

    plan: TunedParams | None
    asked: float
    reached: bool
    predicted: float | None = None  # recall of the plan in the codes, on the queries that chose it
    codes_recall: float | None = None
    remedies: tuple[Remedy, ...] = ()
    note: str = ""
    saved: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is asked of a search."""

    recall: float
    k: int = 10
    of: str | None = None  # "vectors", "codes", or None: vectors where it is known what codes lose of them
    best: bool = False  # take the best there is where the recall is out of reach

    def __post_init__(self) -> None:
        if not isinstance(self.recall, int | float) or not 0 < self.recall <= 1:
            raise ConfigError(f"the recall asked for is {self.recall!r}; it must be above 0 and at most 1, such as 0.9")
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
                "it is not known what the codes of this index lose of the vectors, which are gone; tune for a recall "
                "of the codes, or build the index again and compact it"
            )
        self._codes_recall = codes_recall

    def run(self) -> Tuned:
        start = time.perf_counter()
        segment, base = probed_segment(self._snapshot)
        if segment is None:
            note = "every passage is scored already: the index is small, or not compacted; there is nothing to tune"
            return Tuned(plan=None, asked=self._goal.recall, reached=True, note=note)
        if len(self._queries) < FEWEST_QUERIES:
            raise InputError(f"{len(self._queries)} queries are too few to tune with; give {FEWEST_QUERIES} or more")
        needed = self._goal.recall / (self._codes_recall or 1.0) if self._of_vectors else self._goal.recall
        reached = needed <= 1
        if not reached and not self._goal.best:
            return self._unreached(segment)
        needed = min(needed, 1.0)
        choosing, judging = self._queries.some(slice(0, None, 2)), self._queries.some(slice(1, None, 2))
        truths = [self._truth(choosing, number) for number in range(len(choosing))]
        ladder = Ladder.of(_coded(segment), self._n_first(choosing))
        recalls = self._recalls(segment, base, choosing, truths, ladder)
        self._on_progress("timing", 0, 1)
        seconds = seconds_of(choosing.rows, _coded(segment), ladder, int(ladder.floods[0]))
        judged = [self._truth(judging, number) for number in range(len(judging))]
        exhaustive = float(np.median([truth.seconds for truth in truths + judged]))
        plan, predicted = self._judged(judging, judged, ladder, recalls, seconds, exhaustive, needed)
        return Tuned(
            plan=plan,
            asked=self._goal.recall,
            reached=reached,
            predicted=predicted,
            codes_recall=self._codes_recall,
            remedies=() if reached else remedies(segment),
            seconds=time.perf_counter() - start,
        )

    def _unreached(self, segment: Segment) -> Tuned:
        return Tuned(
            plan=None,
            asked=self._goal.recall,
            reached=False,
            codes_recall=self._codes_recall,
            remedies=remedies(segment),
        )

    def _n_first(self, queries: Queries) -> int:
        """The passages that a search asks a segment for."""
        k = self._goal.k + int(np.any(queries.sources != NO_SOURCE))
        return k if self._snapshot.n_rows == self._snapshot.n_documents else 2 * k

    def _truth(self, queries: Queries, number: int) -> _Truth:
        self._on_progress("true answers", number, len(queries))
        docs, rows, seconds = self._search(queries, number, ExactMulti(n_threads=self._n_threads))
        return _Truth(docs, rows, seconds)

    def _search(
        self, queries: Queries, number: int, generator: ExactMulti | ProbedMulti
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], float]:
        """Documents without the query's source, their passages, and seconds."""
        rows, source = queries.rows[number], queries.sources[number]
        batch = QueryBatch([""], Embeddings(multi=MultiVectors(rows, np.array([0, len(rows)], np.int64))))
        k = self._goal.k + int(source != NO_SOURCE)
        start = time.perf_counter()
        found = generator.generate(self._snapshot, batch, k, None, Trace())[0]
        seconds = time.perf_counter() - start
        others = found.docs != source
        return found.docs[others][: self._goal.k], found.rows[others][: self._goal.k], seconds

    def _recalls(
        self, segment: Segment, base: int, queries: Queries, truths: list[_Truth], ladder: Ladder
    ) -> NDArray[np.float64]:
        """The mean recall of every setting; what other segments hold is found by any, since they are scored whole."""
        items = _coded(segment)
        allowed = None if segment.live is None else np.packbits(segment.live, bitorder="little")
        total, n_counted = np.zeros(ladder.shape), 0
        for number, truth in enumerate(truths):
            self._on_progress("settings", number, len(truths))
            if not len(truth.rows):
                continue
            own = truth.rows - base
            own = own[(own >= 0) & (own < segment.n_rows)]
            found = found_at(MultiVectorQuery(queries.rows[number], items), items, own, ladder, allowed)
            total += (found + (len(truth.rows) - len(own))) / len(truth.rows)
            n_counted += 1
        return total / max(n_counted, 1)

    def _judged(
        self,
        queries: Queries,
        truths: list[_Truth],
        ladder: Ladder,
        recalls: NDArray[np.float64],
        seconds: NDArray[np.float64],
        exhaustive: float,
        needed: float,
    ) -> tuple[TunedParams, float]:
        """The cheapest choice that real searches bear out, and the recall that was predicted for it."""
        aim = needed
        for _ in range(MOST_STEPS):
            able = np.where((recalls >= aim) & (seconds < exhaustive), seconds, np.inf)
            place = np.unravel_index(int(np.argmin(able)), able.shape)
            if not np.isfinite(able[place]):
                break
            config = _config(ladder, place)
            recall, median = self._measure(queries, truths, ProbedMulti(config=config, n_threads=self._n_threads))
            if recall >= needed:
                return self._plan(config, recall, median, exhaustive, exhaustive_search=False), float(recalls[place])
            aim = float(recalls[place]) + max(needed - recall, SMALLEST_STEP)
        config = _config(ladder, tuple(length - 1 for length in ladder.shape))
        return self._plan(config, 1.0, exhaustive, exhaustive, exhaustive_search=True), 1.0

    def _measure(self, queries: Queries, truths: list[_Truth], generator: ProbedMulti) -> tuple[float, float]:
        """Recall in the codes and the median seconds of real searches."""
        recalls, seconds = [], []
        for number, truth in enumerate(truths):
            self._on_progress("judging", number, len(truths))
            docs, _, took = self._search(queries, number, generator)
            seconds.append(took)
            if len(truth.docs):
                recalls.append(len(np.intersect1d(docs, truth.docs)) / len(truth.docs))
        return float(np.mean(recalls)) if recalls else 1.0, float(np.median(seconds))

    def _plan(
        self, config: ProbeConfig, recall_in_codes: float, median: float, exhaustive: float, *, exhaustive_search: bool
    ) -> TunedParams:
        reach = self._codes_recall if self._of_vectors and self._codes_recall is not None else 1.0
        return TunedParams(
            n_probe=config.n_probe,
            n_candidates=config.n_candidates,
            n_code_scored=config.n_code_scored,
            n_rescored=config.n_rescored,
            exhaustive=exhaustive_search,
            k=self._goal.k,
            target_recall=float(self._goal.recall),
            recall_of="vectors" if self._of_vectors else "codes",
            recall=round(recall_in_codes * reach, 4),
            recall_in_codes=round(recall_in_codes, 4),
            codes_recall=self._codes_recall,
            median_ms=round(1000 * median, 3),
            exhaustive_ms=round(1000 * exhaustive, 3),
            n_queries=len(self._queries),
            queries=self._queries.kind,
            n_passages=self._snapshot.n_rows,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def probed_segment(snapshot: Snapshot) -> tuple[Segment | None, int]:
    """The largest segment that is searched by probing, and the number of its first row; None if none is."""
    found, base, first = None, 0, 0
    for segment in snapshot.segments:
        probed = segment.coded is not None and segment.n_live > ProbedMulti().exhaustive_below
        if probed and (found is None or segment.n_live > found.n_live):
            found, base = segment, first
        first += segment.n_rows
    return found, base


def remedies(segment: Segment) -> tuple[Remedy, ...]:
    """What could be kept beside what there is, and what it takes. More bits must come from the vectors as they were."""
    items = _coded(segment)
    if items.codes_8bit is not None:
        return ()
    n_vectors, dim, bits = len(items.rows.codes), items.codec.dim, items.codec.bits
    more = [
        Remedy(command=f"--bits {other}", n_bytes=n_vectors * dim * (other - bits) // 8)
        for other in (2, 4, 8)
        if other > bits
    ]
    return (*more, Remedy(command="--keep-8bit", n_bytes=n_vectors * (dim + 1)))


def _coded(segment: Segment) -> CodedItems:
    assert segment.coded is not None
    return segment.coded


def _config(ladder: Ladder, place: tuple[np.intp | int, ...]) -> ProbeConfig:
    probe, gather, centroid_maxsim, fine = place
    return ProbeConfig(
        n_probe=int(ladder.probes[probe]),
        n_candidates=int(ladder.gathers[gather]),
        n_code_scored=int(ladder.floods[centroid_maxsim]),
        n_rescored=int(ladder.fines[fine]),
    )
