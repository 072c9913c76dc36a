"""Building a CUR index: scores every document with every anchor query, then chooses anchors and settings.

Scoring may take hours, so scores are stored block by block, and a build that was stopped resumes. `update_cur` scores
documents that were added later; their embeddings come from the stored pseudo-inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from plait.cur.algebra import ScoreMatrix, numerical_rank, pseudo_inverse
from plait.cur.anchor_queries import check_anchor_queries, dev_split
from plait.cur.anncur import (
    ANCHOR_SHARES,
    AnncurChoice,
    clustered_anchors,
    leverage_anchors,
    random_anchors,
    tune_anncur,
)
from plait.cur.calls import Items
from plait.cur.index import FORMAT, CurFolder, CurManifest, ScoresManifest, scored_texts
from plait.errors import ConfigError, InputError, StoreError
from plait.rerank.cross_encoder import PairScorer
from plait.search.dense import document_vectors
from plait.search.filtering import live_documents
from plait.storage.lock import LOCK, WriterLock
from plait.storage.store import Snapshot, Store

ANCHOR_METHODS = ("random", "clusters", "leverage")
MIN_ANCHOR_QUERIES = 5
BLOCK_PAIRS = 2048  # pairs that are scored and stored together
OnPairs = Callable[[int, int], None]  # pairs scored by this call, pairs that it has to score


@dataclass(frozen=True, slots=True, kw_only=True)
class CurConfig:
    """How anchor documents are chosen."""

    budget: int = 200  # cross-encoder calls that a search will have
    k: int = 10  # neighbours that the settings are chosen for
    n_anchors: int = 0  # 0: dev queries choose a share of the budget
    anchor_method: str = "random"  # random, clusters (of dense vectors) or leverage
    seed: int = 0

    def __post_init__(self) -> None:
        if self.budget < 2 or self.k < 1:
            raise ConfigError(f"the budget is {self.budget} and k is {self.k}; they must be at least 2 and 1")
        if self.n_anchors < 0 or self.n_anchors >= self.budget:
            raise ConfigError(
                f"{self.n_anchors} anchors were asked for, and the budget is {self.budget} calls, anchors included; "
                f"give a larger budget or fewer anchors"
            )
        if self.anchor_method not in ANCHOR_METHODS:
            raise ConfigError(
                f"the anchor method is {self.anchor_method!r}; it must be one of {', '.join(ANCHOR_METHODS)}"
            )


def build_cur(
    store: Store,
    scorer: PairScorer,
    queries: Sequence[str],
    config: CurConfig | None = None,
    *,
    model: str = "",
    on_pairs: OnPairs | None = None,
) -> CurManifest:
    """Builds the CUR index of a store. Resumes if the stored scores are of the same model and queries, else starts
    again."""
    config, queries = config or CurConfig(), list(queries)
    check_anchor_queries(queries, where="the anchor queries", minimum=MIN_ANCHOR_QUERIES)
    folder = CurFolder(store.path)
    with _locked(folder):
        stored = folder.scores_manifest()
        # The model's folder may have moved; its fingerprint says whether it is the same model.
        if stored is None or (stored.scorer, stored.queries) != (scorer.fingerprint, tuple(queries)):
            folder.start_scores(ScoresManifest(scorer.fingerprint, model, tuple(queries)))
        _score_missing(store, folder, scorer, queries, on_pairs)
        with store.snapshot() as snapshot:
            manifest, embeddings, inverse = _decompose(snapshot, folder, queries, config)
        folder.write_embeddings(manifest, embeddings, inverse)
        return manifest


def update_cur(store: Store, scorer: PairScorer, *, on_pairs: OnPairs | None = None) -> CurManifest:
    """Scores the documents that were added since the build and embeds them. The anchors stay the same."""
    folder = CurFolder(store.path)
    manifest, stored = folder.manifest(), folder.scores_manifest()
    if stored is None or stored.scorer != scorer.fingerprint:
        raise ConfigError(
            f"the CUR index of {store.path} was built with {stored.scorer if stored else 'another model'!r}, and this "
            f"is {scorer.fingerprint!r}: their scores cannot be compared. Update with the first, or build again"
        )
    with _locked(folder):
        _score_missing(store, folder, scorer, stored.queries, on_pairs)
        inverse = folder.inverse()
        embeddings = np.asarray(folder.scores(len(stored.queries)) @ inverse.T, np.float32)
        manifest = replace(manifest, n_documents=len(embeddings), created=_now())
        folder.write_embeddings(manifest, embeddings, inverse)
        return manifest


def _score_missing(
    store: Store, folder: CurFolder, scorer: PairScorer, queries: Sequence[str], on_pairs: OnPairs | None
) -> None:
    """Scores the documents without scores. StoreError if the index changed meanwhile; the scores stay stored."""
    with store.snapshot() as snapshot:
        commit = snapshot.commit
        missing = np.setdiff1d(live_documents(snapshot), folder.recover_scores(len(queries)))
        block_size, n_pairs = max(1, BLOCK_PAIRS // len(queries)), len(missing) * len(queries)
        for start in range(0, len(missing), block_size):
            docs = missing[start : start + block_size]
            texts = scored_texts(snapshot.fetch(docs.tolist()))
            scores = scorer.score([(query, text) for text in texts for query in queries])
            block = np.asarray(scores, np.float32).reshape(len(docs), len(queries))
            _check_finite(block, docs, queries, snapshot)
            folder.append_scores(docs, block)
            if on_pairs is not None:
                on_pairs((start + len(docs)) * len(queries), n_pairs)
    with store.snapshot() as now:
        if now.commit != commit:
            raise StoreError(
                f"index {store.path} changed while its documents were scored (commit {commit}, now {now.commit}); all "
                f"scores are stored: run the same command again, and it scores only the new documents"
            )


def _check_finite(
    block: NDArray[np.float32], docs: NDArray[np.int64], queries: Sequence[str], snapshot: Snapshot
) -> None:
    wrong = np.argwhere(~np.isfinite(block))
    if len(wrong):
        row, column = (int(index) for index in wrong[0])
        id = snapshot.fetch_ids([int(docs[row])])[0]
        raise InputError(
            f"the cross-encoder scored document {id!r} with the query {queries[column]!r:.60} as {block[row, column]}; "
            f"scores must be finite: try its fp32 graph, or correct the document. Earlier scores are stored"
        )


def _decompose(
    snapshot: Snapshot, folder: CurFolder, queries: Sequence[str], config: CurConfig
) -> tuple[CurManifest, NDArray[np.float32], NDArray[np.float32]]:
    """The manifest, the embeddings (documents, anchors) and the pseudo-inverse (anchors, anchor queries)."""
    docs, scores = folder.docs(), folder.scores(len(queries))
    live = np.flatnonzero(np.isin(docs, live_documents(snapshot)))
    if len(live) < 2:
        raise InputError(f"the index has {len(live)} documents; a CUR index needs at least 2")
    matrix = ScoreMatrix(np.ascontiguousarray(scores[live].T))
    max_anchors = config.n_anchors or max(1, min(int(0.9 * config.budget), len(live) - 1))
    if max_anchors >= len(live):
        raise ConfigError(
            f"{max_anchors} anchors were asked for, and the index has {len(live)} documents; choose fewer"
        )
    anchors = _anchor_items(snapshot, matrix, docs[live], max_anchors, config)
    choice, n_dev = _choose(matrix, anchors, queries, config)
    anchors = anchors[: choice.n_anchors]
    block = matrix.values[:, anchors]
    inverse = pseudo_inverse(block, rcond=choice.rcond).astype(np.float32)
    manifest = CurManifest(
        format=FORMAT,
        anchor_docs=tuple(docs[live][anchors].tolist()),
        anchor_texts=tuple(scored_texts(snapshot.fetch(docs[live][anchors].tolist()))),
        rcond=choice.rcond,
        budget=config.budget,
        k=config.k,
        dev_recall=choice.recall,
        n_dev_queries=n_dev,
        rank=numerical_rank(block, max(choice.rcond, 1e-6)),
        n_documents=len(docs),
        created=_now(),
    )
    return manifest, np.asarray(scores @ inverse.T, np.float32), inverse


def _anchor_items(snapshot: Snapshot, matrix: ScoreMatrix, docs: NDArray[np.int64], n: int, config: CurConfig) -> Items:
    """n anchors, as indices into `docs`."""
    if config.anchor_method == "random":
        return random_anchors(len(docs), n, seed=config.seed)
    if config.anchor_method == "leverage":
        return leverage_anchors(matrix.values, n, seed=config.seed)
    if snapshot.spec.dense is None:
        raise ConfigError("clusters need dense vectors, and this index has none; choose anchors by random or leverage")
    vector_docs, vectors = document_vectors(snapshot)
    return clustered_anchors(vectors[np.searchsorted(vector_docs, docs)], n, seed=config.seed)


def _choose(matrix: ScoreMatrix, anchors: Items, queries: Sequence[str], config: CurConfig) -> tuple[AnncurChoice, int]:
    """The settings, and the number of dev queries that chose them."""
    rows, dev = dev_split(queries, seed=config.seed)
    choice = tune_anncur(
        ScoreMatrix(matrix.values[rows]),
        anchors,
        matrix.values[dev],
        budget=min(config.budget, matrix.n_items),
        k=min(config.k, matrix.n_items),
        anchor_shares=[len(anchors) / config.budget] if config.n_anchors else ANCHOR_SHARES,
    )
    return choice, len(dev)


@contextmanager
def _locked(folder: CurFolder) -> Iterator[None]:
    """Allows one build at a time."""
    folder.path.mkdir(exist_ok=True)
    lock = WriterLock(folder.path / LOCK)
    try:
        yield
    finally:
        lock.release()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
