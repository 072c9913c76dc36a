"""Several segments whose vectors name the cells of one codec, searched as if they were one: centroids are scored once,
and each stage keeps the best of all segments, not so many of each.

Compressed segments offer what their postings lead to. A segment that is not compressed is new and small: all of its
passages go by their centroids, and those that stay are scored by their vectors. So new passages cost a look at their
cells, and crowd out of the later stages those that they are better than.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.scoring.maxsim import maxsim
from plait.scoring.maxsim import top_k as top_k_floats
from plait.scoring.residual import Cells, top_k
from plait.search.filtering import Allowed, Eligible, eligible, kept
from plait.search.multivector.params import Settings
from plait.search.multivector.query import MultiVectorQuery, ProbeConfig
from plait.search.ranking import Ranking
from plait.search.retriever import documents_of
from plait.search.trace import Trace
from plait.storage.files.residual import same_codec
from plait.storage.segment import Segment, segment_errors
from plait.storage.store import Snapshot

Numbers = NDArray[np.int64]


class Pool:
    """Parts of one codec, at least one of which is compressed; or one part without a codec."""

    def __init__(self, parts: Sequence[Eligible]) -> None:
        self.coded = [part for part in parts if part.segment.coded is not None]
        self.plain = [part for part in parts if part.segment.coded is None]
        self.parts = [*self.coded, *self.plain]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def n_rows(self) -> int:
        return sum(part.segment.n_rows for part in self.parts)

    @cached_property
    def n_documents(self) -> int:
        return sum(part.n_documents for part in self.parts)

    @cached_property
    def near(self) -> Near:
        """The cells of all that is not compressed."""
        return Near.of(self.plain)


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """The cells of several segments one after another, copied once: two bytes a vector, so that a search needs one call
    for all of them."""

    rows: list[Numbers]  # of each segment, those that may be found
    cells: Cells
    begins: Numbers  # of the cells of each row
    ends: Numbers

    @classmethod
    def of(cls, parts: Sequence[Eligible]) -> Near:
        rows, begins, ends, before = [], [], [], 0
        cells: list[NDArray[Any]] = []
        for part in parts:
            vectors, near = part.segment.multi, part.segment.centroid_ids_file
            assert vectors is not None
            assert near is not None
            own = part.numbers
            with segment_errors(part.segment, "uncompressed"):
                near.check_values()
            rows.append(own)
            cells.append(near.cells)
            begins.append(before + vectors.offsets[own])
            ends.append(before + vectors.offsets[own + 1])
            before += len(near.cells)
        return cls(rows, np.concatenate(cells), np.concatenate(begins), np.concatenate(ends))


def pools(snapshot: Snapshot, allowed: Allowed) -> list[Pool]:
    """All parts that have rows to be found: those of each codec together, and the others one by one."""
    return kept(snapshot, allowed, "pools", lambda: _pooled(eligible(snapshot, allowed)))


def _pooled(parts: Sequence[Eligible]) -> list[Pool]:
    groups: list[list[Eligible]] = []
    for part in sorted(parts, key=lambda part: part.segment.coded is None):  # compressed ones first
        own = next((group for group in groups if _of_one_codec(group[0].segment, part.segment)), None)
        if own is None:
            groups.append([part])
        else:
            own.append(part)
    return [Pool(group) for group in groups]


def _of_one_codec(first: Segment, other: Segment) -> bool:
    if first.coded is None or first.codebook != other.codebook:
        return False
    if other.coded is not None:
        return same_codec(first.coded, other.coded)
    return other.centroid_ids_file is not None and other.centroid_ids_file.n_cells == len(first.coded.codec.codebook)


class PoolSearch:
    """One query against a pool that has something compressed."""

    def __init__(
        self, pool: Pool, query: NDArray[np.float32], trace: Trace, known: dict[int, Any] | None = None
    ) -> None:
        """What was worked out from centroids is left in `known`, for those who score rows of the same segment."""
        self._pool, self._query, self._trace = pool, query, trace
        first = pool.coded[0].segment
        assert first.coded is not None
        with segment_errors(first):
            asked = MultiVectorQuery(query, first.coded, trace)
            if known is not None:
                known[id(first.coded)] = asked
            others = [part.segment.coded for part in pool.coded[1:]]
            self._asked = [asked, *(asked.on(items) for items in others if items is not None)]

    def search(self, settings: Settings, k: int, n_first: int) -> Ranking:
        """k documents, if there are as many with a vector: where too few come, more are asked for."""
        n_wanted, config = n_first, settings.config
        everything = [part.numbers for part in self._pool.coded] if settings.by_centroids else None
        while True:
            found, n_items = self._once(config, k, n_wanted, everything)
            if len(found) >= k or len(found) == self._pool.n_documents:
                return found
            if n_items >= n_wanted:
                n_wanted *= 2
            elif everything is not None or config.n_probe >= len(self._asked[0].table):
                return found
            else:
                config = replace(config, n_probe=2 * config.n_probe)

    def _once(self, config: ProbeConfig, k: int, n_wanted: int, gathered: list[Numbers] | None) -> tuple[Ranking, int]:
        """The k best documents, and how many passages they were chosen from: what the cells lead to, unless given."""
        if gathered is None:
            gathered = self._gathered(config.n_probe, max(config.n_candidates, 4 * n_wanted))
        coded, plain = self._flooded(gathered, max(config.n_code_scored, n_wanted))
        coded = self._sifted(coded, max(config.n_rescored, n_wanted), config.prune_margin)
        docs, numbers, scores = [], [], []
        for part, asked, rows in zip(self._pool.coded, self._asked, coded, strict=True):
            if len(rows):
                with segment_errors(part.segment):
                    scores.append(asked.scores(rows))
                docs.append(part.segment.docs[rows])
                numbers.append(part.base + rows)
        if any(map(len, plain)):
            with self._trace.stage("floats") as stage:
                for part, rows in zip(self._pool.plain, plain, strict=True):
                    vectors = part.segment.multi
                    if vectors is not None and len(rows):
                        scores.append(maxsim(self._query, vectors, items=rows))
                        docs.append(part.segment.docs[rows])
                        numbers.append(part.base + rows)
                stage.counts["items"] = sum(map(len, plain))
        if not docs:
            return documents_of(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32), k), 0
        found = documents_of(np.concatenate(docs), np.concatenate(numbers), np.concatenate(scores), k)
        return found, sum(len(own) for own in docs)

    def _gathered(self, n_probe: int, n_candidates: int) -> list[Numbers]:
        """Of all compressed segments, the best of the cells that are read; of equals, the first."""
        rows, sums = [], []
        for part, asked in zip(self._pool.coded, self._asked, strict=True):
            with segment_errors(part.segment):
                own, own_sums = asked.gather(n_probe, n_candidates, part.bits)
            rows.append(own.astype(np.int64))
            sums.append(own_sums)
        if sum(map(len, rows)) <= n_candidates:
            return rows
        order = np.argsort(-np.concatenate(sums).astype(np.int64), kind="stable")
        return _kept(rows, order[:n_candidates])

    def _flooded(self, coded: list[Numbers], n_keep: int) -> tuple[list[Numbers], list[Numbers]]:
        """Of those and all that is not compressed, the best by their centroids."""
        near = self._pool.near if self._pool.plain else None
        rows = coded if near is None else [*coded, *near.rows]
        if sum(map(len, rows)) > n_keep:
            scores = []
            for part, asked, own in zip(self._pool.coded, self._asked, coded, strict=True):
                with segment_errors(part.segment):
                    scores.append(asked.centroid_scores(own))
            if near is not None:
                scores.append(self._asked[0].scores_by_cells(near.cells, near.begins, near.ends))
            rows = _kept(rows, top_k(np.concatenate(scores), n_keep))
        return rows[: len(coded)], rows[len(coded) :]

    def _sifted(self, coded: list[Numbers], n_keep: int, prune_margin: float) -> list[Numbers]:
        """Of what is compressed, the best by the codes of its promising rows."""
        if sum(map(len, coded)) <= n_keep:
            return coded
        scores = []
        for part, asked, own in zip(self._pool.coded, self._asked, coded, strict=True):
            with segment_errors(part.segment):
                scores.append(asked.sift_scores(own, prune_margin))
        return _kept(coded, top_k_floats(np.concatenate(scores), n_keep))


def _kept(rows: Sequence[Numbers], places: Numbers) -> list[Numbers]:
    """Of the rows of several segments, those at these places among all; in their order."""
    places = np.sort(places)
    if len(rows) == 1:
        return [rows[0][places]]
    ends = np.cumsum([len(own) for own in rows])
    cuts = np.searchsorted(places, ends)
    starts = [0, *cuts[:-1]]
    return [
        own[places[start:cut] - (end - len(own))] for own, start, cut, end in zip(rows, starts, cuts, ends, strict=True)
    ]
