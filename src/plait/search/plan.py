"""Plans: which generators run, which strands score what they find, how that is fused, and how deep. A mode is a plan
with a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError
from plait.search import smoothing as neighbours
from plait.search.bm25 import Bm25
from plait.search.dense import DenseConfig, ExactDense, ProbedDense
from plait.search.fusion import Fusion, ReciprocalRank, WeightedSum
from plait.search.hybrid_params import BgeM3Params, HybridConfig, paper_config
from plait.search.multivector.colxtr import ColXtr
from plait.search.multivector.exhaustive import Exhaustive
from plait.search.multivector.method import Method
from plait.search.multivector.paper_methods import CandidateConfig, MethodMulti, RescoredMulti
from plait.search.multivector.plaid import Plaid
from plait.search.multivector.query import ProbeConfig
from plait.search.multivector.retriever import ExactMulti, ProbedMulti
from plait.search.multivector.warp import Warp
from plait.search.multivector.xtr import Xtr
from plait.search.options import configured, unknown
from plait.search.ranking import QueryBatch, Ranking
from plait.search.rescoring import completed, scorer_of, union
from plait.search.retriever import BEST, CHUNKS, FUSED, Allowed, Generator
from plait.search.sparse import Sparse, SparseConfig
from plait.search.trace import Trace
from plait.storage.fusion_weights import FittedWeights
from plait.storage.store import Snapshot

MODES = {
    "hybrid": "every strand the index has and BM25: what one of them finds is scored by all",
    "dense": "one vector a passage, inner product",
    "sparse": "weighted terms, inner product",
    "multi": "many vectors a passage, late interaction (MaxSim)",
    "bm25": "full text, BM25; needs no model",
    "exhaustive": "MaxSim of every passage",
    "plaid": "MaxSim of the passages that two cuts by centroids leave",
    "xtr": "the tokens that each query token retrieves among all, missing ones imputed",
    "colxtr": "the same among the cells of all query tokens together",
    "warp": "the same among each query token's own cells",
    "dense>multi": "what dense finds, rescored by MaxSim",
    "bm25>multi": "what BM25 finds, rescored by MaxSim",
    "dense+sparse": "what dense and sparse find, by a weighted sum (BGE-M3)",
    "all": "what dense finds, by a weighted sum of dense, sparse and multi (BGE-M3)",
}

# Modes that ask a cross-encoder, a budget of times; plait.rerank makes their plans.
CUR_MODES = {
    "anncur": "fixed anchors predict what a cross-encoder would score",
    "adacur": "the same in rounds, with anchors chosen for the query",
    "axn": "rounds over dense vectors; needs no CUR index",
}
EXACT = ("hybrid", "dense", "sparse", "multi", "bm25", "exhaustive")
METHODS: dict[str, type[Method]] = {
    "exhaustive": Exhaustive,
    "plaid": Plaid,
    "xtr": Xtr,
    "colxtr": ColXtr,
    "warp": Warp,
}
STRANDS_OF = {
    **{mode: ["multi"] for mode in METHODS},
    "dense>multi": ["dense", "multi"],
    "bm25>multi": ["bm25", "multi"],
    "dense+sparse": ["dense", "sparse"],
    "all": ["dense", "sparse", "multi"],
}
PAPER = ("dense+sparse", "all")
PART = 1 / 3  # of the cells that dense search reads by itself: docs/dense.md
HEAD = 10  # documents of a hybrid's multi list that are found as reliably as by multi search for as many
CHUNKED = ("hybrid", "dense", "sparse", "multi")  # modes with the setting `chunks`


@dataclass(frozen=True, slots=True)
class Plan:
    """Generators, each asked for `depth` documents or for k if that is more; one alone needs no fusion.

    Where strands are named to rescore, each of them scores all that any generator found, and it is these scores that
    are fused.
    """

    generators: Sequence[Generator]
    fusion: Fusion | HybridConfig = ReciprocalRank()  # noqa: RUF009 -- frozen; a config looks for fitted weights
    depth: int = 100
    rescored: Sequence[str] = ()
    n_threads: int = 1
    chunks: str = BEST  # how the passages of a document make its score, where it is rescored

    def __post_init__(self) -> None:
        if not self.generators:
            raise ConfigError("a plan needs at least one generator")
        if self.depth < 1:
            raise ConfigError(f"the depth of a plan is {self.depth}; it must be at least 1")

    @property
    def needs_encoder(self) -> bool:
        return any(name != "bm25" for name in self.rescored) or any(
            getattr(generator, "needs_encoder", True) for generator in self.generators
        )

    def without_text(self) -> Plan:
        """The same plan for queries that are vectors only: what reads text is left out."""
        kept = tuple(generator for generator in self.generators if not _reads_text(generator))
        if not kept:
            raise ConfigError("this mode reads the query's text, and only vectors were given; pass texts as well")
        return replace(self, generators=kept, rescored=tuple(name for name in self.rescored if name != "bm25"))

    def run(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        if len(self.generators) == 1 and not self.rescored:
            return self._alone(self.generators[0], snapshot, batch, k, allowed, trace)
        lists = self.lists(snapshot, batch, max(k, self.depth), allowed, trace)
        fusion = self.fusion_on(snapshot)
        with trace.stage("fuse"):
            n_fused = k if not self._lends else max(k, neighbours.POOL)
            fused = [fusion.fuse(own, n_fused, self.lengths(batch, number)) for number, own in enumerate(lists)]
        if not self._lends:
            return fused
        with trace.stage(neighbours.NAME):
            return [neighbours.smooth_scores(found, snapshot, self._lends).top(k) for found in fused]

    @property
    def _lends(self) -> float:
        """The share of a document's score that its neighbours have."""
        return self.fusion.neighbours if isinstance(self.fusion, HybridConfig) and "dense" in self.rescored else 0.0

    def fusion_on(self, snapshot: Snapshot) -> Fusion:
        """The fusion with the weights that count on this index: asked for, fitted, or by default."""
        if isinstance(self.fusion, HybridConfig):
            return self.fusion.fusion_for(snapshot.weights.fitted)
        return self.fusion

    def lists(
        self, snapshot: Snapshot, batch: QueryBatch, depth: int, allowed: Allowed, trace: Trace
    ) -> list[dict[str, Ranking]]:
        """What is to be fused: for each query, the ranking of each list."""
        found = {}
        for generator in self.generators:
            with trace.stage(generator.name):
                found[generator.name] = generator.generate(snapshot, batch, depth, allowed, trace)
        lists = [{name: rankings[number] for name, rankings in found.items()} for number in range(len(batch))]
        if not self.rescored:
            return lists
        with trace.stage("rescore") as stage:
            lists = self._rescore(snapshot, batch, lists, trace)
            stage.counts["items"] = sum(max(map(len, own.values())) for own in lists)
        return lists

    @staticmethod
    def lengths(batch: QueryBatch, number: int) -> dict[str, float]:
        """By what the scores of a strand are divided before they are weighed: the multi strand's become a mean."""
        multi = batch.embeddings.multi
        return {} if multi is None else {"multi": float(max(len(multi[number]), 1))}

    def _rescore(
        self, snapshot: Snapshot, batch: QueryBatch, lists: Sequence[Mapping[str, Ranking]], trace: Trace
    ) -> list[dict[str, Ranking]]:
        within = Trace()
        found: list[dict[str, Ranking]] = [{} for _ in lists]
        pools = [union(list(own.values())) for own in lists]
        for kind in self.rescored:
            scorer = scorer_of(kind, snapshot, batch, Trace(), n_threads=self.n_threads, chunks=self.chunks)
            with within.stage(kind):
                for number, (own, docs) in enumerate(zip(found, pools, strict=True)):
                    known = lists[number].get(kind) if self._lists_are_exact(snapshot) else None
                    own[kind] = scorer(number, docs) if known is None else completed(known, docs, number, scorer)
        trace.add(within, under="rescore")
        return found

    def _lists_are_exact(self, snapshot: Snapshot) -> bool:
        """Whether a generator's scores are those that its strand gives: they are where documents have one passage.
        Of several, a generator may not have seen the best."""
        return self.chunks == BEST and snapshot.n_rows == snapshot.n_documents

    def _alone(
        self, generator: Generator, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace
    ) -> list[Ranking]:
        with trace.stage(generator.name):
            rankings = generator.generate(snapshot, batch, k, allowed, trace)
        return [replace(found, parts={**found.parts, generator.name: found.scores}) for found in rankings]


def _reads_text(generator: Generator) -> bool:
    return isinstance(generator.first if isinstance(generator, RescoredMulti) else generator, Bm25)


def plan_for(
    mode: str,
    spec: EmbeddingSpec,
    *,
    exact: bool = False,
    n_threads: int = 1,
    options: Mapping[str, object] | None = None,
    exclude_from_hybrid: Sequence[str] = (),
    fitted: FittedWeights | None = None,
) -> Plan:
    """The plan of a mode on an index with these strands; an `exact` one scores every passage. `options` are the
    mode's settings by name. Embeddings in `exclude_from_hybrid` are in a hybrid only where the settings, or weights that were
    `fitted`, give them something."""
    if mode not in MODES:
        raise ConfigError(f"there is no mode {mode!r}; choose one of {', '.join([*MODES, *CUR_MODES])}")
    if exact and (mode not in EXACT or options):
        raise ConfigError(
            f"exact search has no settings and is for the modes {', '.join(EXACT)}; leave out one of exact, "
            f"mode {mode!r} and the settings {list(options or {})}"
        )
    chunks, options = _chunks(mode, options or {})
    settings = _settings(mode, options)
    generators: dict[str, Generator] = {"bm25": Bm25()}
    if spec.dense is not None:
        probed_dense = ProbedDense(settings) if isinstance(settings, DenseConfig) else ProbedDense()
        generators["dense"] = ExactDense() if exact else probed_dense
    if spec.sparse is not None:
        generators["sparse"] = Sparse(settings) if isinstance(settings, SparseConfig) else Sparse()
    if spec.multi is not None:
        probed = ProbedMulti(n_threads=n_threads)
        if options and isinstance(settings, ProbeConfig):
            probed = replace(probed, config=settings, exhaustive_below=0)  # who sets how to probe wants it done
        generators["multi"] = ExactMulti(n_threads=n_threads) if exact else probed
    if isinstance(settings, HybridConfig):
        kept = {
            name: own
            for name, own in generators.items()
            if name not in exclude_from_hybrid or settings.weighs(name, fitted)
        }
        return _hybrid(kept, settings, exact=exact, n_threads=n_threads, chunks=chunks)
    for kind in STRANDS_OF.get(mode, [mode]):
        if kind not in generators:
            raise ConfigError(
                f"mode {mode!r} needs the {kind} strand, which this index does not have; it can be searched as "
                f"{', '.join(['hybrid', *generators])}"
            )
    if isinstance(settings, BgeM3Params):
        own = tuple(STRANDS_OF[mode])
        first = own if mode == "dense+sparse" else ("dense",)
        rescored = own if settings.rescore else ()
        fusion = settings.fusion(mode)
        return Plan(tuple(generators[name] for name in first), fusion, settings.depth, rescored, n_threads)
    if isinstance(settings, CandidateConfig):
        return Plan((RescoredMulti(generators[mode.split(">")[0]], settings, n_threads=n_threads),))
    if chunks == FUSED:
        # Each generator finds documents by their best passages; all passages of these are then scored.
        return Plan((generators[mode],), WeightedSum(), rescored=(mode,), n_threads=n_threads, chunks=chunks)
    if settings is None or isinstance(settings, ProbeConfig | SparseConfig | DenseConfig):
        return Plan((generators[mode],))
    return Plan((MethodMulti(settings, mode, n_threads=n_threads),))


def _hybrid(
    generators: Mapping[str, Generator], settings: HybridConfig, *, exact: bool, n_threads: int, chunks: str
) -> Plan:
    """Every strand that has a weight. The multi strand, whose own search is the dearest, looks for documents where
    nothing else reads meaning, or where each list must stand alone; else it scores what the others found, which gives
    as good an answer (docs/plans.md)."""
    if chunks == FUSED and not settings.rescores:
        raise ConfigError("chunks=fused needs the scores of all passages; leave rescore=0 and fusion=rank out")
    own = {name: generator for name, generator in generators.items() if getattr(settings, name) != 0}
    if not own:
        raise ConfigError(f"the weights of {', '.join(generators)} are all 0; leave one of them as it is")
    if len(own) == 1:
        return Plan(tuple(own.values()))
    rescored = tuple(own) if settings.rescores else ()
    # Of a long list only the head must be found nearly whole: the others' lists and the fusion follow.
    if rescored and isinstance(dense := own.get("dense"), ProbedDense):
        own["dense"] = replace(dense, share_of_cells=PART)
    if isinstance(multi := own.get("multi"), ProbedMulti):
        own["multi"] = replace(multi, as_for=HEAD)
        if rescored and not settings.multi_finds and not exact and "dense" in own:
            del own["multi"]
    return Plan(tuple(own.values()), settings, settings.depth, rescored, n_threads, chunks)


Settings = Method | ProbeConfig | CandidateConfig | DenseConfig | SparseConfig | HybridConfig | BgeM3Params


def _chunks(mode: str, options: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """The setting `chunks`, which several modes share, and the others."""
    rest = dict(options)
    chunks = rest.pop("chunks", BEST) if mode in CHUNKED else BEST
    if chunks not in CHUNKS:
        raise ConfigError(f"chunks is {chunks!r}; it must be one of {', '.join(CHUNKS)}")
    return str(chunks), rest


def _settings(mode: str, options: Mapping[str, object]) -> Settings | None:
    """What the mode is to be run with; None where there is nothing to set."""
    if mode in METHODS:
        return configured(METHODS[mode], options, mode=mode)
    if mode == "multi":
        return configured(ProbeConfig, options, mode=mode)
    if mode == "dense":
        return configured(DenseConfig, options, mode=mode)
    if mode == "sparse":
        return configured(SparseConfig, options, mode=mode)
    if mode == "hybrid":
        return configured(HybridConfig, options, mode=mode)
    if mode in PAPER:
        return paper_config(mode, options)
    if mode in STRANDS_OF:
        return configured(CandidateConfig, options, mode=mode)
    for name in options:
        raise unknown(name, [], mode=mode)
    return None
