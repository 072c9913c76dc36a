"""Mining of hard negatives with plait's own index, by BM25 or by a model: the code that mines is the code that
searches. What is searched may also be a collection of shards: see `plait.cluster.mining`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from plait.embeddings import Embeddings
from plait.encode.chunking import WholeDocument, with_title
from plait.encode.protocol import EmbeddingSpec, Encoder, OnBatch
from plait.errors import InputError
from plait.evaluate import rank_queries
from plait.index import Index, open_index
from plait.readers import documents_from
from plait.train.data.example import Example, Passage, digest
from plait.train.data.text_store import TextStore
from plait.train.mining.config import MiningConfig

BATCH_QUERIES = 64  # searched together

Rank = Callable[[Sequence[str]], list[list[str]]]  # for each query, the ids of the documents that rank first


class Texts(Protocol):
    """The texts of a corpus; `TextStore` is one."""

    def get(self, ids: Sequence[str]) -> list[str | None]:
        """The texts in the order of the ids; None for an unknown id."""

    def ids(self) -> list[str]:
        """Every id, sorted."""


class Bm25Only:
    """An encoder without embeddings: its index holds full text only, for BM25."""

    fingerprint = "BM25 only"
    spec = EmbeddingSpec()
    chunker = WholeDocument()

    def encode_queries(self, texts: Sequence[str]) -> Embeddings:
        del texts
        return Embeddings()

    def encode_documents(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> Embeddings:
        del texts, on_batch
        return Embeddings()


def corpus_path(given: str | Path) -> Path:
    """The corpus of a BEIR folder, or the file itself."""
    path = Path(given)
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):
        if (path / name).is_file():
            return path / name
    if not path.exists():
        raise InputError(f"there is no corpus {str(path)!r} to mine in; name a BEIR folder or a file of documents")
    return path


def make_index(path: Path, corpus: str | Path, encoder: Encoder | None) -> Index:
    """A new index of the corpus at `path`; without an encoder it supports BM25 only."""
    shutil.rmtree(path, ignore_errors=True)
    index = open_index(path, create=True, encoder=Bm25Only() if encoder is None else encoder)
    try:
        index.add(documents_from([corpus_path(corpus)]))
    except BaseException:
        index.close()
        raise
    return index


def read_corpus(corpus: str | Path) -> TextStore:
    """The texts of the corpus by id, title first, as they are trained on."""
    store = TextStore()
    documents = documents_from([corpus_path(corpus)])
    store.add((document.id, with_title(document.title, document.text)) for document in documents)
    return store


def mine_negatives(
    examples: Iterable[Example],
    index: Index,
    texts: Texts,
    config: MiningConfig,
    *,
    mode: str,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    """Each example with new negatives that a search of the index finds: see `draw_negatives`."""

    def rank(queries: Sequence[str]) -> list[list[str]]:
        return [[id for id, _ in ranking] for ranking in rank_queries(index, queries, config.last_rank, mode=mode)]

    yield from draw_negatives(examples, rank, texts, config, seed=seed, on_progress=on_progress)


def draw_negatives(
    examples: Iterable[Example],
    rank: Rank,
    texts: Texts,
    config: MiningConfig,
    *,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    """Each example with new negatives: `n_negatives` drawn at random from `first_rank` to `last_rank`, without the
    positives and without two passages of the same text, then `n_random` from the whole corpus. Old scores are dropped,
    because they belong to the old negatives."""
    rest, n_done, all_ids = iter(examples), 0, texts.ids() if config.n_random else []
    while block := list(islice(rest, BATCH_QUERIES)):
        ranked = rank([example.query for example in block])
        for example, ranking in zip(block, ranked, strict=True):
            rng = np.random.default_rng([seed, n_done])
            ids = ranking[config.first_rank - 1 : config.last_rank]
            negatives = _draw_negatives(example, ids, texts, config.n_negatives, rng)
            if config.n_random:
                # Draws more than needed, because positives and known negatives are skipped.
                drawn = rng.integers(len(all_ids), size=4 * config.n_random + 16)
                random_ids = [all_ids[number] for number in drawn]
                negatives += _draw_negatives(example, random_ids, texts, config.n_random, rng, known=negatives)
            yield replace(example, negatives=negatives, positive_scores=None, negative_scores=None)
            n_done += 1
        if on_progress is not None:
            on_progress(n_done)


def _draw_negatives(
    example: Example,
    ids: Sequence[str],
    texts: Texts,
    n: int,
    rng: np.random.Generator,
    *,
    known: Sequence[Passage] = (),
) -> tuple[Passage, ...]:
    """At most n passages of these ids, in their order, without positives, `known` passages and equal texts."""
    seen = {digest(passage.text) for passage in (*example.positives, *known)} | {digest(example.query)}
    positive_ids = {passage.id for passage in example.positives if passage.id}
    candidates: list[Passage] = []
    for id, text in zip(ids, texts.get(ids), strict=True):
        if text is None or id in positive_ids or digest(text) in seen:
            continue
        seen.add(digest(text))
        candidates.append(Passage(text, id))
    drawn = sorted(rng.permutation(len(candidates))[:n].tolist())
    return tuple(candidates[number] for number in drawn)
