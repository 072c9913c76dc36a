"""The multi strand searched by one of the papers' methods, and rescored for documents that others found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plait.errors import ConfigError
from plait.search.filtering import eligible
from plait.search.multivector.method import Method, at_least_one
from plait.search.multivector.retriever import SegmentSearch, multi_queries, passages_for, score_rows
from plait.search.ranking import QueryBatch, Ranking, merge
from plait.search.retriever import Allowed, Generator, candidate_rows
from plait.search.trace import Trace
from plait.storage.store import Snapshot


@dataclass(frozen=True, slots=True)
class MethodMulti:
    """A method on compressed segments. Its score is MaxSim, or one of its own; in the first case segments that are not
    compressed are scored exactly beside, in the second there can be one segment only."""

    method: Method
    name: str
    n_threads: int = 1

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = multi_queries(snapshot, batch), Trace()
        if not self.method.comparable:
            _check_alone(self.name, snapshot)
        found: list[list[Ranking]] = [[] for _ in queries]
        n_first = passages_for(k, snapshot)
        for part in eligible(snapshot, allowed):
            if part.segment.coded is None:
                for query, own in zip(queries, found, strict=True):
                    own.append(score_rows(part.segment, part.base, part.rows, query, k, self.n_threads, within))
            else:
                asked = SegmentSearch(part, k, n_first)
                for query, own in zip(queries, found, strict=True):
                    own.append(asked.search(self.method, query, within, n_threads=self.n_threads))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in found]


def _check_alone(name: str, snapshot: Snapshot) -> None:
    """Imputed scores depend on what else a segment holds, so those of two segments cannot be compared."""
    there = [segment for segment in snapshot.segments if segment.n_live]
    plain = [str(segment.number) for segment in there if segment.residual_file is None]
    if plain:
        raise ConfigError(
            f"mode {name!r} needs the whole multi strand compressed, and of {snapshot.path} segments "
            f"{', '.join(plain)} are not; run `plait compact {snapshot.path}` "
            f"(fewer than 256 vectors stay as they are: use mode multi)"
        )
    if len(there) > 1:
        raise ConfigError(
            f"mode {name!r} imputes scores, which cannot be compared across segments, and {snapshot.path} has "
            f"{len(there)} (numbers {', '.join(str(segment.number) for segment in there)}); run "
            f"`plait compact {snapshot.path}`"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateConfig:
    n_candidates: int = 200  # documents that the first generator gives; k, if that is more

    def __post_init__(self) -> None:
        at_least_one(self, "n_candidates")


@dataclass(frozen=True, slots=True)
class RescoredMulti:
    """MaxSim of the documents that another generator found: over codes, or exactly where there are none."""

    first: Generator
    config: CandidateConfig = CandidateConfig()
    name: str = "multi"
    n_threads: int = 1

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = multi_queries(snapshot, batch), Trace()
        with trace.stage(self.first.name) as stage:
            offered = self.first.generate(snapshot, batch, max(k, self.config.n_candidates), allowed, trace)
            stage.counts["items"] = sum(len(ranking) for ranking in offered)
        found = []
        for query, first in zip(queries, offered, strict=True):
            order = np.argsort(first.docs)
            docs = first.docs[order]
            parts = [
                score_rows(segment, base, rows, query, k, self.n_threads, within)
                for segment, base, rows in candidate_rows(snapshot, docs)
            ]
            ranking = merge(parts, k)
            own = {self.first.name: first.scores[order][np.searchsorted(docs, ranking.docs)]}
            found.append(Ranking(ranking.docs, ranking.scores, ranking.rows, own))
        trace.add(within, under=self.name)
        return found
