"""Tuning an index: finds queries, measures, and saves the plan. `plait.tune.recall` has the measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from plait.embeddings import Embeddings
from plait.encode.load import EXTERNAL
from plait.encode.protocol import Encoder
from plait.errors import ConfigError, InputError, QueryError
from plait.storage.store import Snapshot, Store
from plait.tune.recall import FEWEST_QUERIES, Goal, OnProgress, Tuned, Tuner, probed_segment
from plait.tune.synthetic_queries import Queries, from_rows, words_of_documents

USUAL_QUERIES = 200
# Vectors scored for true answers, over all queries: about a minute. A larger index is tuned with fewer queries, which
# depends on its size alone, so that the same index always gets the same ones.
MOST_SCORED = 800_000_000
FEWEST_BY_DEFAULT = 64


def tune_store(
    store: Store,
    encoder: Callable[[], Encoder],
    goal: Goal,
    *,
    queries: Sequence[str] | Embeddings | Queries | None = None,
    n_queries: int | None = None,
    seed: int = 0,
    n_threads: int = 1,
    on_progress: OnProgress | None = None,
) -> Tuned:
    """Chooses settings for the newest state and saves them; the lock is held throughout, so that state stays."""
    if n_queries is not None and (type(n_queries) is not int or n_queries < FEWEST_QUERIES):
        raise ConfigError(f"n_queries is {n_queries!r}; at least {FEWEST_QUERIES} are needed to measure anything")
    if isinstance(queries, str):
        raise QueryError("tune takes a sequence of queries; put a single one in a list")
    if store.spec.multi is None:
        raise ConfigError("the index has no multi strand; dense and full-text search score everything, untuned")
    with store.writer() as writer, store.snapshot() as snapshot:
        chosen = Queries("rows", [], np.zeros(0, np.int64))
        if probed_segment(snapshot)[0] is not None:
            n_queries = n_queries or queries_for(snapshot)
            chosen = _queries(snapshot, store, encoder, queries, n_queries, seed)
        reach = snapshot.codes_recall
        tuned = Tuner(snapshot, chosen, goal, codes_recall=reach, n_threads=n_threads, on_progress=on_progress).run()
        if tuned.plan is None:
            return tuned
        writer.save_tuned_params(tuned.plan)
        return replace(tuned, saved=True)


def queries_for(snapshot: Snapshot) -> int:
    """How many queries an index is tuned with if nobody says."""
    n_vectors = sum(len(segment.coded.rows.codes) for segment in snapshot.segments if segment.coded is not None)
    return min(USUAL_QUERIES, max(FEWEST_BY_DEFAULT, MOST_SCORED // max(n_vectors, 1)))


def _queries(
    snapshot: Snapshot,
    store: Store,
    encoder: Callable[[], Encoder],
    given: Sequence[str] | Embeddings | Queries | None,
    n_queries: int,
    seed: int,
) -> Queries:
    if isinstance(given, Embeddings):
        given = Queries.of("given", given.multi)
    if isinstance(given, Queries):
        return _some(_fit(given, snapshot), n_queries, seed)
    if given is not None:
        texts = [given[number] for number in _drawn(len(given), n_queries, seed)]
        for text in texts:
            if not isinstance(text, str) or not text.strip():
                raise QueryError(f"a query to tune with is {text!r:.60}; each must be text")
        if len(texts) < FEWEST_QUERIES:
            raise InputError(f"{len(texts)} queries are too few to tune with; give {FEWEST_QUERIES} or more")
        return Queries.of("given", encoder().encode_queries(texts).multi)
    if store.fingerprint != EXTERNAL:
        words = words_of_documents(snapshot, n_queries, seed=seed)
        if len(words) >= FEWEST_QUERIES:
            return Queries.of("words", encoder().encode_queries(list(words.values())).multi, list(words))
    return from_rows(snapshot, n_queries, seed=seed)


def _fit(queries: Queries, snapshot: Snapshot) -> Queries:
    for number, rows in enumerate(queries.rows):
        if not len(rows) or rows.shape[1] != snapshot.spec.multi or not np.isfinite(rows).all():
            raise InputError(
                f"query {number} has shape {rows.shape}; it needs rows of {snapshot.spec.multi} finite values"
            )
    return queries


def _some(queries: Queries, n_queries: int, seed: int) -> Queries:
    drawn = _drawn(len(queries), n_queries, seed)
    return Queries(queries.kind, [queries.rows[number] for number in drawn], queries.sources[drawn])


def _drawn(n_there: int, n_wanted: int, seed: int) -> list[int]:
    """Numbers of at most `n_wanted`, in a random order, so that halves of them are alike."""
    return [int(number) for number in np.random.default_rng(seed).permutation(n_there)[:n_wanted]]
