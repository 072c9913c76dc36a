"""Building a CUR index: every document is scored with every anchor query, then anchors, split and cut are chosen.

The scoring is hours of work, so it is kept block by block: a build that was stopped goes on where it was. Documents
that are added later are scored by `update_cur`, and get embeddings from the pseudo-inverse that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from plait.cur.algebra import numerical_rank, pseudo_inverse
from plait.cur.anchor_queries import dev_split
from plait.cur.anchors import clustered_anchors, leverage_anchors, random_anchors
from plait.cur.calls import Items
from plait.cur.choosing import Choice, choose
from plait.cur.index import FORMAT, Begun, CurFacts, CurFolder, texts_of
from plait.cur.matrix import ScoreMatrix, check_anchor_queries
from plait.errors import ConfigError, InputError, StoreError
from plait.rerank.cross_encoder import PairScorer
from plait.search.live import document_vectors, live_documents
from plait.storage.lock import LOCK, WriterLock
from plait.storage.store import Snapshot, Store

ANCHORS = ("random", "clusters", "leverage")
BLOCK_PAIRS = 2048  # pairs that are scored and kept together
OnPairs = Callable[[int, int], None]  # pairs scored by this call, pairs that it has to score


@dataclass(frozen=True, slots=True, kw_only=True)
class CurConfig:
    """How anchors are chosen."""

    budget: int = 200  # calls of the cross-encoder that a search will have
    k: int = 10  # neighbours that split and cut are chosen for
    anchors: int = 0  # how many; 0 lets dev queries choose a share of the budget
    choice: str = "random"  # random, clusters (of dense vectors) or leverage
    seed: int = 0

    def __post_init__(self) -> None:
        if self.budget < 2 or self.k < 1:
            raise ConfigError(f"the budget is {self.budget} and k is {self.k}; they must be at least 2 and 1")
        if self.anchors < 0 or self.anchors >= self.budget:
            raise ConfigError(
                f"{self.anchors} anchors were asked for, and the budget is {self.budget} calls, anchors included; give "
                f"a larger budget or fewer anchors"
            )
        if self.choice not in ANCHORS:
            raise ConfigError(f"anchors are chosen by {', '.join(ANCHORS)}; not by {self.choice!r}")


def build_cur(
    store: Store,
    scorer: PairScorer,
    queries: Sequence[str],
    config: CurConfig | None = None,
    *,
    model: str = "",
    on_pairs: OnPairs | None = None,
) -> CurFacts:
    """Builds the CUR index of a store, or goes on with it. Other queries or another model begin anew."""
    config, queries = config or CurConfig(), list(queries)
    check_anchor_queries(queries, where="the anchor queries", fewest=5)
    folder = CurFolder(store.path)
    with _locked(folder):
        begun = Begun(scorer.fingerprint, model, tuple(queries))
        if not _same(folder.begun(), begun):
            folder.begin(begun)
        _score(store, folder, scorer, queries, on_pairs)
        with store.snapshot() as snapshot:
            facts, embeddings, inverse = _decomposed(snapshot, folder, queries, config)
        folder.write(facts, embeddings, inverse)
        return facts


def update_cur(store: Store, scorer: PairScorer, *, on_pairs: OnPairs | None = None) -> CurFacts:
    """Scores the documents that were added since, and gives them embeddings; anchors stay as they are."""
    folder = CurFolder(store.path)
    facts, begun = folder.facts(), folder.begun()
    if begun is None or begun.scorer != scorer.fingerprint:
        raise ConfigError(
            f"the CUR index of {store.path} was built with {begun.scorer if begun else 'another model'!r}, and this is "
            f"{scorer.fingerprint!r}: their scores cannot be compared. Update with the first, or build anew"
        )
    with _locked(folder):
        _score(store, folder, scorer, begun.queries, on_pairs)
        inverse = folder.inverse()
        embeddings = np.asarray(folder.scores(len(begun.queries)) @ inverse.T, np.float32)
        facts = replace(facts, n_documents=len(embeddings), made=_now())
        folder.write(facts, embeddings, inverse)
        return facts


def _score(
    store: Store, folder: CurFolder, scorer: PairScorer, queries: Sequence[str], on_pairs: OnPairs | None
) -> None:
    """Scores what is missing. If the index changes meanwhile, what was scored is kept, and a StoreError says so."""
    with store.snapshot() as snapshot:
        commit = snapshot.commit
        missing = np.setdiff1d(live_documents(snapshot), folder.scored(len(queries)))
        size, n_pairs = max(1, BLOCK_PAIRS // len(queries)), len(missing) * len(queries)
        for start in range(0, len(missing), size):
            docs = missing[start : start + size]
            texts = texts_of(snapshot.fetch(docs.tolist()))
            scores = scorer.score([(query, text) for text in texts for query in queries])
            block = np.asarray(scores, np.float32).reshape(len(docs), len(queries))
            _refuse_nan(block, docs, queries, snapshot)
            folder.append(docs, block)
            if on_pairs is not None:
                on_pairs((start + len(docs)) * len(queries), n_pairs)
    with store.snapshot() as now:
        if now.commit != commit:
            raise StoreError(
                f"index {store.path} changed while its documents were scored (commit {commit}, now {now.commit}); all "
                f"scores are kept: run the same command again, and only what is new is scored"
            )


def _refuse_nan(
    block: NDArray[np.float32], docs: NDArray[np.int64], queries: Sequence[str], snapshot: Snapshot
) -> None:
    wrong = np.argwhere(~np.isfinite(block))
    if len(wrong):
        doc, query = (int(place) for place in wrong[0])
        id = snapshot.fetch_ids([int(docs[doc])])[0]
        raise InputError(
            f"the cross-encoder scored document {id!r} with the query {queries[query]!r:.60} as {block[doc, query]}; "
            f"scores must be finite: try its fp32 graph, or mend the document. What was scored before is kept"
        )


def _decomposed(
    snapshot: Snapshot, folder: CurFolder, queries: Sequence[str], config: CurConfig
) -> tuple[CurFacts, NDArray[np.float32], NDArray[np.float32]]:
    docs, scores = folder.docs(), folder.scores(len(queries))
    live = np.flatnonzero(np.isin(docs, live_documents(snapshot)))
    if len(live) < 2:
        raise InputError(f"the index has {len(live)} documents; there is nothing to search for with a cross-encoder")
    matrix = ScoreMatrix(np.ascontiguousarray(scores[live].T))
    most = config.anchors or max(1, min(int(0.9 * config.budget), len(live) - 1))
    if most >= len(live):
        raise ConfigError(f"{most} anchors were asked for, and the index has {len(live)} documents; choose fewer")
    anchors = _anchors(snapshot, matrix, docs[live], most, config)
    choice, n_dev = _chosen(matrix, anchors, queries, config)
    anchors = anchors[: choice.n_anchors]
    block = matrix.values[:, anchors]
    inverse = pseudo_inverse(block, cut=choice.cut).astype(np.float32)
    facts = CurFacts(
        format=FORMAT,
        anchors=tuple(docs[live][anchors].tolist()),
        anchor_texts=tuple(texts_of(snapshot.fetch(docs[live][anchors].tolist()))),
        cut=choice.cut,
        budget=config.budget,
        k=config.k,
        dev_recall=choice.recall,
        n_dev=n_dev,
        rank=numerical_rank(block, max(choice.cut, 1e-6)),
        n_documents=len(docs),
        made=_now(),
    )
    return facts, np.asarray(scores @ inverse.T, np.float32), inverse


def _anchors(snapshot: Snapshot, matrix: ScoreMatrix, docs: NDArray[np.int64], n: int, config: CurConfig) -> Items:
    """Places in `docs`."""
    if config.choice == "random":
        return random_anchors(len(docs), n, seed=config.seed)
    if config.choice == "leverage":
        return leverage_anchors(matrix.values, n, seed=config.seed)
    if snapshot.spec.dense is None:
        raise ConfigError("anchors by clusters need the dense strand, which this index lacks; choose another way")
    numbers, vectors = document_vectors(snapshot)
    return clustered_anchors(vectors[np.searchsorted(numbers, docs)], n, seed=config.seed)


def _chosen(matrix: ScoreMatrix, anchors: Items, queries: Sequence[str], config: CurConfig) -> tuple[Choice, int]:
    rows, dev = dev_split(queries, seed=config.seed)
    budget, k = min(config.budget, matrix.n_items), min(config.k, matrix.n_items)
    splits = [len(anchors) / config.budget] if config.anchors else None
    options = {} if splits is None else {"splits": splits}
    held = ScoreMatrix(matrix.values[rows])
    return choose(held, anchors, matrix.values[dev], budget=budget, k=k, **options), len(dev)


def _same(found: Begun | None, wanted: Begun) -> bool:
    """Whether a cache goes on: the folder of the model may have moved, its weights may not have changed."""
    return found is not None and (found.scorer, found.queries) == (wanted.scorer, wanted.queries)


def _locked(folder: CurFolder) -> _Lock:
    folder.path.mkdir(exist_ok=True)
    return _Lock(folder)


class _Lock:
    """One build at a time."""

    def __init__(self, folder: CurFolder) -> None:
        self._lock = WriterLock(folder.path / LOCK)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
