"""Hard negatives: what an index finds for a query and is not known to answer it. BM25 and models search through plait's
own index, so that the same code mines as answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from plait.embeddings import Embeddings
from plait.encode.chunking import WholeDocument
from plait.encode.protocol import EmbeddingSpec, Encoder, OnBatch
from plait.errors import InputError
from plait.evaluate import rank_queries
from plait.index import Index, open_index
from plait.readers import documents_from
from plait.train.data.example import Example, Passage, digest
from plait.train.data.text_store import TextStore, titled
from plait.train.mining.config import MiningConfig

_BATCH = 64  # queries that are searched together


class WordsOnly:
    """An encoder without strands: an index that is made with it holds full text alone, for BM25."""

    fingerprint = "words only"
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
    """A fresh index of the corpus at `path`; without an encoder it knows words only."""
    shutil.rmtree(path, ignore_errors=True)
    index = open_index(path, create=True, encoder=WordsOnly() if encoder is None else encoder)
    try:
        index.add(documents_from([corpus_path(corpus)]))
    except BaseException:
        index.close()
        raise
    return index


def read_corpus(corpus: str | Path) -> TextStore:
    """The texts of the corpus by id, as they are trained on: the title leads."""
    store = TextStore()
    store.add((found.id, titled(found.title, found.text)) for found in documents_from([corpus_path(corpus)]))
    return store


def mine(
    examples: Iterable[Example],
    index: Index,
    texts: TextStore,
    config: MiningConfig,
    *,
    mode: str,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    """Each example with new negatives: `number` of those ranked `first_rank` to `last_rank`, drawn at random, without
    the positives and without a second passage of one text; then `random` more from the whole corpus. Scores are left
    out: they were of the old negatives."""
    rest, n_done, everything = iter(examples), 0, texts.ids() if config.random else []
    while block := list(islice(rest, _BATCH)):
        ranked = rank_queries(index, [example.query for example in block], config.last_rank, mode=mode)
        for example, ranking in zip(block, ranked, strict=True):
            rng = np.random.default_rng([seed, n_done])
            ids = [id for id, _ in ranking[config.first_rank - 1 :]]
            negatives = _negatives(example, ids, texts, config.number, rng)
            if config.random:
                # A few more than are wanted, for some may be known already.
                drawn = rng.integers(len(everything), size=4 * config.random + 16)
                others = [everything[place] for place in drawn]
                negatives += _negatives(example, others, texts, config.random, rng, known=negatives)
            yield replace(example, negatives=negatives, positive_scores=None, negative_scores=None)
            n_done += 1
        if on_progress is not None:
            on_progress(n_done)


def _negatives(
    example: Example,
    ids: Sequence[str],
    texts: TextStore,
    number: int,
    rng: np.random.Generator,
    *,
    known: Sequence[Passage] = (),
) -> tuple[Passage, ...]:
    seen = {digest(passage.text) for passage in (*example.positives, *known)} | {digest(example.query)}
    not_these = {passage.id for passage in example.positives if passage.id}
    found: list[Passage] = []
    for id, text in zip(ids, texts.get(ids), strict=True):
        if text is None or id in not_these or digest(text) in seen:
            continue
        seen.add(digest(text))
        found.append(Passage(text, id))
    # Drawn at random, kept in the order of their ranks.
    places = sorted(rng.permutation(len(found))[:number].tolist())
    return tuple(found[place] for place in places)
