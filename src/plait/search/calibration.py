"""What scores mean: bounds for each kind, and the best scores of queries that are about nothing in the index.

Models differ: one gives unrelated texts a cosine of 0.45, another of 0.72. `model_bounds` encodes questions and
passages that come with plait. The mean score of unrelated pairs is the lower bound of a kind; the score of a passage
with itself is the upper bound, which is 1 for unit vectors. Bounds depend on the model and on the projection of the
index alone: they stay until the projection changes. An index whose vectors come from elsewhere is measured by pairs of
its own passages, once.

`unrelated_scores` searches for words drawn from documents that have nothing to do with one another. A hit that scores
no better than the best hits of such queries is no answer. The score at which `UNRELATED_SHARE` of them are left out is
`min_score="auto"`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, Rows
from plait.encode.protocol import Encoder
from plait.locks import OnceDict
from plait.scoring.crc32c import crc32c
from plait.scoring.maxsim import align
from plait.search.calibration_texts import PAIRS
from plait.search.fusion import BoundedSum, bounds_of
from plait.search.modes import PlanContext, resolve
from plait.search.plan import Plan, vector_lengths
from plait.search.query import QueryBatch
from plait.storage.merge import LiveRows, VectorBlock
from plait.storage.saved_settings import Calibration
from plait.storage.snapshot import Snapshot

UNRELATED_SHARE = 0.95  # of unrelated queries find nothing above `min_score="auto"`
DEFAULT_UNRELATED = (0.30, 0.06)  # mean and deviation of their best scores, for an index that was not measured
MIN_DEVIATION = 0.01
MIN_DOCUMENTS = 20  # of an index whose unrelated queries are measured
N_QUERIES, MIN_WORDS, MAX_WORDS = 64, 4, 8
GROWTH = 2  # an index that has grown by this factor is measured again
MIN_SPREAD = 0.02  # between bounds: less means that a kind does not tell related from unrelated texts
N_SAMPLED = 64  # passages of an index whose vectors come from elsewhere
MAX_WORD, MAX_READ = 40, 4000  # characters of a word, and of a text that words are drawn from

_measured: OnceDict[str, dict[str, tuple[float, float]]] = OnceDict()  # bounds, by fingerprint of the encoder

BoundPairs = Mapping[str, tuple[float, float]]


# -- what a score says


def confidence(calibration: Calibration | None, fusion: object, score: float) -> float:
    """The share of unrelated queries whose best hit scores less, from 0 to 1."""
    mean, deviation = _unrelated(calibration, fusion)
    return 0.5 * math.erfc((mean - score) / (deviation * math.sqrt(2)))


def auto_min_score(calibration: Calibration | None, fusion: object) -> float:
    """The score that UNRELATED_SHARE of unrelated queries do not reach."""
    mean, deviation = _unrelated(calibration, fusion)
    return mean + _Z * deviation


_Z = 1.6449  # deviations above the mean below which UNRELATED_SHARE of a normal distribution lies


def _unrelated(calibration: Calibration | None, fusion: object) -> tuple[float, float]:
    if calibration is None or calibration.unrelated_mean is None or calibration.unrelated_deviation is None:
        return DEFAULT_UNRELATED
    if not isinstance(fusion, BoundedSum) or _used(fusion) != dict(calibration.weights):
        return DEFAULT_UNRELATED  # scores of other weights have another distribution
    return calibration.unrelated_mean, max(calibration.unrelated_deviation, MIN_DEVIATION)


def _used(fusion: BoundedSum) -> dict[str, float]:
    return {name: float(weight) for name, weight in fusion.weights.items()}


# -- bounds


def model_bounds(encoder: Encoder, snapshot: Snapshot | None = None) -> dict[str, tuple[float, float]]:
    """The bounds of each kind of embedding that an encoder makes, and that the index of the snapshot may project.
    Measured once for an encoder and a projection in a process."""
    projection = None if snapshot is None else snapshot.projection
    directions = "" if projection is None else f" {crc32c(projection.fitted.directions)}"

    def measure() -> dict[str, tuple[float, float]]:
        try:
            queries = encoder.encode_queries([question for question, _ in PAIRS])
            passages = encoder.encode_documents([passage for _, passage in PAIRS])
        except Exception:  # a caller's encoder may know its own texts only; then the default bounds have to do
            return {}
        if snapshot is not None:
            queries, passages = snapshot.projected(queries), snapshot.projected(passages)
        return _bounds(queries, passages)

    return _measured.get(encoder.fingerprint + directions, measure)


def index_bounds(snapshot: Snapshot) -> dict[str, tuple[float, float]]:
    """The same from pairs of passages of an index, for vectors that were made elsewhere; empty if there are too few."""
    dense: list[NDArray[np.float32]] = []
    multi: list[NDArray[np.float32]] = []
    rng = np.random.default_rng(0)
    for segment in snapshot.segments:
        rows = LiveRows.of(segment).rows
        for row in np.sort(rng.permutation(rows)[: N_SAMPLED // max(len(snapshot.segments), 1) + 1]).tolist():
            if segment.dense is not None:
                dense.append(np.asarray(segment.dense[row], np.float32))
            if (stored := segment.coded if segment.multi is None else segment.multi) is not None:
                vectors = np.arange(int(stored.offsets[row]), int(stored.offsets[row + 1]))
                multi.append(VectorBlock(segment, vectors, np.array([0, len(vectors)]), None).floats())
    if max(len(dense), len(multi)) < 2:
        return {}
    sampled = Embeddings(
        dense=np.stack(dense) if dense else None, multi=MultiVectors.from_items(multi) if multi else None
    )
    return _bounds(sampled, sampled)


def _bounds(queries: Embeddings, passages: Embeddings) -> dict[str, tuple[float, float]]:
    """By kind: the mean score of the pairs that do not belong together, and the highest of passages with themselves."""
    bounds = {}
    itself = _matrices(passages, passages)
    for kind, matrix in _matrices(queries, passages).items():
        size = len(matrix)
        low = float((matrix.sum() - np.trace(matrix)) / (size * (size - 1)))
        high = float(np.diag(itself[kind]).max())
        if not math.isfinite(low + high) or not MIN_SPREAD - high < low < high - MIN_SPREAD:
            continue  # the default bounds do as well
        bounds[kind] = (round(low, 4), round(high, 4))
    return bounds


def _matrices(queries: Embeddings, passages: Embeddings) -> dict[str, NDArray[np.float64]]:
    """(queries, passages) scores by kind, divided by the lengths of the query's vectors, as fusion does."""
    matrices: dict[str, NDArray[np.float64]] = {}
    if queries.dense is not None and passages.dense is not None:
        matrices["dense"] = np.asarray(queries.dense @ passages.dense.T, np.float64)
    if queries.multi is not None and passages.multi is not None:
        numbers = range(len(passages.multi))
        matrices["multi"] = np.array(
            [
                [_maxsim(queries.multi[number], passages.multi[other]) for other in numbers]
                for number in range(len(queries.multi))
            ]
        )
    for kind, matrix in matrices.items():
        matrix /= np.array([[vector_lengths(queries, number)[kind]] for number in range(len(matrix))])
    return matrices


def _maxsim(query: Rows, passage: Rows) -> float:
    if not len(query) or not len(passage):
        return 0.0
    _, scores = align(np.ascontiguousarray(query, np.float32), np.ascontiguousarray(passage, np.float32))
    return float(scores.sum())


# -- unrelated queries


def unrelated_queries(snapshot: Snapshot, *, seed: int = 0) -> list[str]:
    """Queries about nothing: each has a few words, every one drawn from another document."""
    rng = np.random.default_rng(seed)
    parts = [LiveRows.of(segment) for segment in snapshot.segments]
    docs = np.unique(np.concatenate([part.segment.docs[part.rows] for part in parts] or [np.zeros(0, np.int64)]))
    if len(docs) < MIN_DOCUMENTS:
        return []
    drawn = rng.choice(docs, min(len(docs), N_QUERIES * MAX_WORDS), replace=False)
    words = []  # of each document
    for document in snapshot.fetch([int(doc) for doc in drawn]):
        terms = [word for word in snapshot.analyser.query_terms(document.text[:MAX_READ]) if len(word) <= MAX_WORD]
        if terms:
            words.append(terms)
    if len(words) < MAX_WORDS:
        return []
    queries = []
    for _ in range(N_QUERIES):
        n_words = int(rng.integers(MIN_WORDS, MAX_WORDS + 1))
        chosen = [words[int(number)] for number in rng.choice(len(words), n_words, replace=False)]
        queries.append(" ".join(terms[int(rng.integers(len(terms)))] for terms in chosen))
    return queries


def unrelated_scores(snapshot: Snapshot, encoder: Encoder, plan: Plan) -> NDArray[np.float64]:
    """The score of the best hit of each unrelated query."""
    texts = unrelated_queries(snapshot)
    if not texts:
        return np.zeros(0)
    try:
        embeddings = encoder.encode_queries(texts) if plan.needs_encoder else Embeddings()
    except Exception:  # as in `model_bounds`: the documents are added, and that must not fail now
        return np.zeros(0)
    rankings = plan.run(snapshot, QueryBatch(texts, snapshot.projected(embeddings)))
    return np.array([float(ranking.scores[0]) if len(ranking) else 0.0 for ranking in rankings])


# -- calibrating an index


def is_due(known: Calibration | None, n_documents: int) -> bool:
    """Whether an index of this size must be measured, for the first time or again."""
    if known is None:
        return n_documents > 0
    if known.unrelated_mean is None:
        return n_documents >= MIN_DOCUMENTS
    return n_documents >= GROWTH * known.n_documents


def calibrate(
    snapshot: Snapshot, encoder: Encoder | None, *, exclude_from_hybrid: Sequence[str] = (), n_threads: int = 1
) -> Calibration:
    """Measures an index. Bounds that are known stay as they are. Without an encoder, for vectors that were made
    elsewhere, unrelated queries are not measured."""
    known = snapshot.calibration.usable
    bounds: BoundPairs = known.bounds if known is not None else {}
    if not bounds:
        bounds = index_bounds(snapshot) if encoder is None else model_bounds(encoder, snapshot)
    kinds = [kind for kind, size in snapshot.spec.sizes().items() if size]
    calibration = Calibration(
        bounds={kind: pair for kind, pair in bounds.items() if kind in kinds},
        weights={},
        unrelated_mean=None,
        unrelated_deviation=None,
        n_queries=0,
        n_documents=snapshot.n_documents,
        date=datetime.now(UTC).date().isoformat(),
    )
    if encoder is None or not bounds:
        return calibration
    context = PlanContext.of(snapshot, k=1, n_threads=n_threads, exclude_from_hybrid=tuple(exclude_from_hybrid))
    plan = resolve("hybrid", None, replace(context, bounds=bounds_of(calibration)))
    if not isinstance(plan.fusion, BoundedSum):
        return calibration
    scores = unrelated_scores(snapshot, encoder, plan)
    if len(scores) < 2:
        return calibration
    return replace(
        calibration,
        weights=_used(plan.fusion),
        unrelated_mean=round(float(scores.mean()), 4),
        unrelated_deviation=round(float(scores.std()), 4),
        n_queries=len(scores),
    )
