"""Plans and retrievers for tests: modes resolved without an index, and probing with the defaults of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from plait.encode.protocol import EmbeddingSpec
from plait.search.filtering import DocFilter
from plait.search.modes import PlanContext, find_mode, resolve
from plait.search.multivector.plait import ProbedMulti
from plait.search.multivector.probe import ProbeParams, resolve_probe
from plait.search.plan import Plan
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking
from plait.search.trace import Trace
from plait.storage.snapshot import Snapshot


def plan_for(mode: str, spec: EmbeddingSpec, *, k: int = 10, exact: bool = False, **params: object) -> Plan:
    """The plan of a mode with these params, on an index of this spec that was not tuned."""
    given = find_mode(mode).params(**params) if params else None
    return resolve(mode, given, PlanContext(spec=spec, k=k, exact=exact))


def doc_filter(snapshot: Snapshot, docs: list[int] | None) -> DocFilter | None:
    return None if docs is None else DocFilter(snapshot.segments, np.asarray(docs, np.int64))


@dataclass(frozen=True)
class DefaultProbe:
    """`ProbedMulti` with the parameters of the snapshot, also on few passages."""

    exhaustive_below: int = 1
    n_threads: int = 1
    name: str = "multi"
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        probe = resolve_probe(ProbeParams(), n_passages=snapshot.n_rows, k=k, tuned=snapshot.tuned.usable)
        retriever = ProbedMulti(probe, self.exhaustive_below, n_threads=self.n_threads)
        return retriever.retrieve(snapshot, batch, k, doc_filter, trace)
