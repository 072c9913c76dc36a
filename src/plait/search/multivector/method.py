"""`Method`: how one query finds the best of a segment's compressed items. `MethodRetriever` runs one on a snapshot.

The papers' methods are here for comparison: PLAID, XTR, ColXTR, WARP. Mode `multi` is plait's own, in `plait.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.search.filtering import DocFilter, SegmentRows, or_everything
from plait.search.modes import Mode, PlanContext
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.passages import passages_for, score_passages
from plait.search.multivector.query import MultiVectorQuery
from plait.search.plan import DEFAULT_DEPTH, Plan
from plait.search.query import QueryBatch, multi_queries
from plait.search.ranking import Ranking, merge
from plait.search.retriever import rank_rows, rank_segment
from plait.search.trace import Trace
from plait.storage.segment import segment_errors
from plait.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class FoundItems:
    """Items that a method found, best first; equal scores are ordered by item number."""

    items: NDArray[np.int64]
    scores: NDArray[np.float32]
    # (n_query,) For methods that impute: the score of each query row with tokens that it did not retrieve.
    imputed: NDArray[np.float32] | None = None


NOTHING = FoundItems(np.zeros(0, np.int64), np.zeros(0, np.float32))


class Method(Protocol):
    # Whether scores of different segments can be compared: imputed ones cannot.
    comparable: ClassVar[bool]

    def search(self, query: MultiVectorQuery, k: int, item_filter: ItemFilter, *, n_threads: int = 1) -> FoundItems:
        """The k best of the accepted items that the method finds; the same for any `n_threads`."""
        ...

    def wider(self, query: MultiVectorQuery, k: int, item_filter: ItemFilter) -> Self | None:
        """The same method, reading about twice as much; None if it reads everything already."""
        ...


@dataclass(frozen=True, slots=True)
class MethodRetriever:
    """A method on compressed segments. If its scores are MaxSim, segments that are not compressed are scored exactly
    beside; if it imputes scores, there can be only one segment."""

    method: Method
    name: str
    n_threads: int = 1
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    @property
    def probes(self) -> bool:
        """Whether what it finds may depend on k."""
        return self.name != "exhaustive"

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        queries, within = multi_queries(snapshot, batch), Trace()
        if not self.method.comparable:
            check_one_segment(self.name, snapshot)
        rankings: list[list[Ranking]] = [[] for _ in queries]
        n_first = passages_for(k, snapshot)
        for part in or_everything(snapshot, doc_filter).segment_rows:
            for query, parts in zip(queries, rankings, strict=True):
                if part.segment.coded is None:
                    scores = score_passages(part.segment, part.rows, query, self.n_threads, within)
                    parts.append(rank_segment(part, scores, k))
                else:
                    parts.append(self._search(part, query, k, n_first, within))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in rankings]

    def _search(self, part: SegmentRows, rows: NDArray[np.float32], k: int, n_first: int, trace: Trace) -> Ranking:
        """k documents, if the segment has as many: while there are too few, more items are asked for."""
        method, n_wanted, segment = self.method, n_first, part.segment
        assert segment.coded is not None
        with segment_errors(segment):
            query = MultiVectorQuery(rows, segment.coded, trace)
            while True:
                result = method.search(query, n_wanted, part.item_filter, n_threads=self.n_threads)
                order = np.argsort(result.items)
                ranking = rank_rows(segment, part.base, result.items[order], result.scores[order], k)
                ranking = replace(ranking, imputed=result.imputed)
                if len(ranking) >= k or len(ranking) == part.n_documents:
                    return ranking
                if len(result.items) == n_wanted:
                    n_wanted *= 2
                    continue
                wider = method.wider(query, n_wanted, part.item_filter)
                if wider is None:
                    return ranking
                method = wider


def check_one_segment(name: str, snapshot: Snapshot) -> None:
    """Imputed scores depend on what else a segment holds, so those of two segments cannot be compared."""
    segments = [segment for segment in snapshot.segments if segment.n_live]
    uncompressed = [str(segment.number) for segment in segments if segment.residual_file is None]
    if uncompressed:
        raise ConfigError(
            f"mode {name!r} needs all multi vectors compressed, and of {snapshot.path} segments "
            f"{', '.join(uncompressed)} are not; run `plait compact {snapshot.path}` "
            f"(fewer than 256 vectors stay as they are: use mode multi)"
        )
    if len(segments) > 1:
        raise ConfigError(
            f"mode {name!r} imputes scores, which cannot be compared across segments, and {snapshot.path} has "
            f"{len(segments)} (numbers {', '.join(str(segment.number) for segment in segments)}); run "
            f"`plait compact {snapshot.path}`"
        )


def method_mode(name: str, summary: str, params: type, make: Callable[..., Method], *, exact: bool = False) -> Mode:
    """The mode of a method that `make` makes of its params."""

    def build(context: PlanContext, given: object) -> Plan:
        retriever = MethodRetriever(make(given), name, n_threads=context.n_threads)
        return Plan((retriever,), context.k or DEFAULT_DEPTH)

    return Mode(name=name, summary=summary, needs=("multi",), params=params, exact=exact, build=build)
