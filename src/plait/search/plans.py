"""Plans: which generators run, how their lists are fused, and how deep. A mode is a plan with a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from plait.encode.protocol import StrandShape
from plait.errors import ConfigError
from plait.index.store import Snapshot
from plait.search.bm25 import Bm25
from plait.search.dense import ExactDense
from plait.search.fusion import ReciprocalRank
from plait.search.generator import Allowed, Generator
from plait.search.multi import ExactMulti, ProbedMulti
from plait.search.ranking import QueryBatch, Ranking
from plait.search.trace import Trace

MODES = {
    "hybrid": "every strand the index has and BM25, woven by reciprocal rank",
    "dense": "one vector a passage, inner product",
    "multi": "many vectors a passage, late interaction (MaxSim)",
    "bm25": "full text, BM25; needs no model",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Generators, each asked for `depth` documents or for k if that is more; one alone needs no fusion."""

    generators: Sequence[Generator]
    fusion: ReciprocalRank = ReciprocalRank()  # noqa: RUF009 -- frozen
    depth: int = 100

    def __post_init__(self) -> None:
        if not self.generators:
            raise ConfigError("a plan needs at least one generator")
        if self.depth < 1:
            raise ConfigError(f"the depth of a plan is {self.depth}; it must be at least 1")

    @property
    def needs_encoder(self) -> bool:
        return any(not isinstance(generator, Bm25) for generator in self.generators)

    def without_text(self) -> Plan:
        """The same plan for queries that are vectors only: what reads text is left out."""
        kept = tuple(generator for generator in self.generators if not isinstance(generator, Bm25))
        if not kept:
            raise ConfigError("this mode reads the query's text, and only vectors were given; pass texts as well")
        return replace(self, generators=kept)

    def run(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        if len(self.generators) == 1:
            return self._alone(self.generators[0], snapshot, batch, k, allowed, trace)
        depth = max(k, self.depth)
        lists = {}
        for generator in self.generators:
            with trace.stage(generator.name):
                lists[generator.name] = generator.generate(snapshot, batch, depth, allowed, trace)
        with trace.stage("fuse"):
            return [
                self.fusion.fuse({name: rankings[number] for name, rankings in lists.items()}, k)
                for number in range(len(batch))
            ]

    def _alone(
        self, generator: Generator, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace
    ) -> list[Ranking]:
        with trace.stage(generator.name):
            rankings = generator.generate(snapshot, batch, k, allowed, trace)
        return [Ranking(found.docs, found.scores, found.rows, {generator.name: found.scores}) for found in rankings]


def plan_for(mode: str, shape: StrandShape, *, exact: bool = False, n_threads: int = 1) -> Plan:
    """The plan of a mode on an index with these strands; an `exact` one scores every passage."""
    if mode not in MODES:
        raise ConfigError(f"there is no mode {mode!r}; choose one of {', '.join(MODES)}")
    generators: dict[str, Generator] = {"bm25": Bm25()}
    if shape.dense is not None:
        generators["dense"] = ExactDense()
    if shape.multi is not None:
        generators["multi"] = ExactMulti(n_threads=n_threads) if exact else ProbedMulti(n_threads=n_threads)
    if mode == "hybrid":
        return Plan(tuple(generators.values()))
    if mode not in generators:
        raise ConfigError(
            f"mode {mode!r} needs the {mode} strand, which this index does not have; it can be searched as "
            f"{', '.join(['hybrid', *generators])}"
        )
    return Plan((generators[mode],))
