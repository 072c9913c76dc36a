"""Building a CUR index: scores every document with every anchor query, then chooses anchors and settings.

Scoring may take hours, so scores are stored block by block in a draft (plait.cur.draft), and a build that was stopped
resumes. `update_cur` scores documents that were added later; their embeddings come from the stored pseudo-inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

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
from plait.cur.draft import ScoredBlock, ScoreDraft, ScoresManifest, draft_folder, remove_drafts, unique_blocks
from plait.cur.index import (
    ATTACHMENT,
    FORMAT,
    CurManifest,
    StoredCur,
    open_cur,
    require_cur,
    scored_texts,
    write_cur,
)
from plait.errors import ConfigError, CorruptIndexError, InputError, ReadOnlyError, StoreError
from plait.rerank.cross_encoder import PairScorer
from plait.search.dense import document_vectors
from plait.search.filtering import live_documents
from plait.storage.folder import check_folder
from plait.storage.fsync import make_folders, storage_errors
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
    """Builds the CUR index of a store and makes it live in one commit. Uses all stored scores of the same model and
    queries, those of an interrupted build too. Searches use the older CUR index until then."""
    config, queries = config or CurConfig(), list(queries)
    check_anchor_queries(queries, where="the anchor queries", minimum=MIN_ANCHOR_QUERIES)
    scored = ScoresManifest(scorer.fingerprint, model, tuple(queries))
    with _locked(store):
        blocks = _score_missing(store, _sound_cur(store.path), scored, scorer, on_pairs)
        with store.snapshot() as snapshot:
            rows = _kept_rows(blocks, live_documents(snapshot))
            manifest, inverse = _decompose(snapshot, rows, scored, config)
        _commit(store, manifest, rows, inverse)
        remove_drafts(store.path)
        return manifest


def update_cur(store: Store, scorer: PairScorer, *, on_pairs: OnPairs | None = None) -> CurManifest:
    """Scores the documents that were added since the build and embeds them. The anchors stay the same."""
    stored = require_cur(store.path)
    scored = stored.manifest.scores
    if scored.scorer != scorer.fingerprint:
        raise ConfigError(
            f"the CUR index of {store.path} was built with {scored.scorer!r}, and this is {scorer.fingerprint!r}: "
            f"their scores cannot be compared. Update with the first, or build again"
        )
    with _locked(store):
        stored = require_cur(store.path)  # another update may have finished while this one waited
        stored.verify()
        blocks = _score_missing(store, stored, scored, scorer, on_pairs)
        with store.snapshot() as snapshot:
            wanted = np.union1d(live_documents(snapshot), np.array(stored.manifest.anchor_docs, np.int64))
        rows = _kept_rows(blocks, wanted)
        n_documents = sum(len(block.docs) for block in rows)
        manifest = replace(stored.manifest, n_documents=n_documents, created=_now())
        _commit(store, manifest, rows, stored.inverse)
        ScoreDraft.resume(store.path, scored).remove()
        return manifest


def _sound_cur(index: Path) -> StoredCur | None:
    """The CUR index, whose scores a build uses again; None if there is none or it is damaged."""
    try:
        stored = open_cur(index)
        if stored is not None:
            stored.verify()
    except CorruptIndexError:
        return None
    return stored


def _commit(store: Store, manifest: CurManifest, blocks: Sequence[ScoredBlock], inverse: NDArray[np.float32]) -> None:
    with store.writer() as writer:
        writer.attach(ATTACHMENT, lambda folder: write_cur(folder, manifest, blocks, inverse))


def _kept_rows(blocks: Sequence[ScoredBlock], docs: NDArray[np.int64]) -> list[ScoredBlock]:
    """The scores of these documents: a deleted document never returns, and its number is never used again."""
    masks = [np.isin(block.docs, docs) for block in blocks]
    return [
        block if mask.all() else ScoredBlock(block.docs[mask], block.scores[mask])
        for block, mask in zip(blocks, masks, strict=True)
        if mask.any()
    ]


def _score_missing(
    store: Store, stored: StoredCur | None, scored: ScoresManifest, scorer: PairScorer, on_pairs: OnPairs | None
) -> list[ScoredBlock]:
    """Scores the documents without scores; returns all scores. StoreError if the index changed meanwhile; the scores
    stay in the draft."""
    queries, draft = scored.queries, ScoreDraft.resume(store.path, scored)
    is_same = stored is not None and scored.is_comparable(stored.manifest.scores)
    committed = [ScoredBlock(stored.docs, stored.scores)] if stored is not None and is_same else []
    known = [np.zeros(0, np.int64), *(block.docs for block in [*committed, *draft.read()])]
    with store.snapshot() as snapshot:
        commit = snapshot.commit
        missing = np.setdiff1d(live_documents(snapshot), np.concatenate(known))
        block_size, n_pairs = max(1, BLOCK_PAIRS // len(queries)), len(missing) * len(queries)
        for start in range(0, len(missing), block_size):
            docs = missing[start : start + block_size]
            texts = scored_texts(snapshot.fetch(docs.tolist()))
            scores = scorer.score([(query, text) for text in texts for query in queries])
            block = np.asarray(scores, np.float32).reshape(len(docs), len(queries))
            _check_finite(block, docs, queries, snapshot)
            draft.append(docs, block)
            if on_pairs is not None:
                on_pairs((start + len(docs)) * len(queries), n_pairs)
    with store.snapshot() as now:
        if now.commit != commit:
            raise StoreError(
                f"index {store.path} changed while its documents were scored (commit {commit}, now {now.commit}); all "
                f"scores are stored: run the same command again, and it scores only the new documents"
            )
    return unique_blocks([*committed, *draft.read()])


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
    snapshot: Snapshot, blocks: Sequence[ScoredBlock], scored: ScoresManifest, config: CurConfig
) -> tuple[CurManifest, NDArray[np.float32]]:
    """The manifest and the pseudo-inverse (anchors, anchor queries), from the scores of live documents."""
    docs = np.concatenate([np.zeros(0, np.int64), *(block.docs for block in blocks)])
    if len(docs) < 2:
        raise InputError(f"the index has {len(docs)} documents; a CUR index needs at least 2")
    matrix = ScoreMatrix(np.ascontiguousarray(np.concatenate([block.scores for block in blocks]).T))
    max_anchors = config.n_anchors or max(1, min(int(0.9 * config.budget), len(docs) - 1))
    if max_anchors >= len(docs):
        raise ConfigError(
            f"{max_anchors} anchors were asked for, and the index has {len(docs)} documents; choose fewer"
        )
    anchors = _anchor_items(snapshot, matrix, docs, max_anchors, config)
    choice, n_dev = _choose(matrix, anchors, scored.queries, config)
    anchors = anchors[: choice.n_anchors]
    block = matrix.values[:, anchors]
    inverse = pseudo_inverse(block, rcond=choice.rcond).astype(np.float32)
    manifest = CurManifest(
        format=FORMAT,
        scores=scored,
        anchor_docs=tuple(docs[anchors].tolist()),
        anchor_texts=tuple(scored_texts(snapshot.fetch(docs[anchors].tolist()))),
        rcond=float(choice.rcond),
        budget=config.budget,
        k=config.k,
        dev_recall=float(choice.recall),
        n_dev_queries=n_dev,
        rank=int(numerical_rank(block, max(choice.rcond, 1e-6))),
        n_documents=len(docs),
        created=_now(),
    )
    return manifest, inverse


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
def _locked(store: Store) -> Iterator[None]:
    """Allows one build at a time."""
    if store.read_only:
        raise ReadOnlyError(f"index {store.path} was opened read-only; open it without read_only to build a CUR index")
    folder = draft_folder(store.path)
    with storage_errors(folder):
        if not check_folder(folder):
            make_folders(folder)
        lock = WriterLock(folder / LOCK)
    try:
        yield
    finally:
        lock.release()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
