"""Tables that the sparse head is given rather than learns: the IDF of each id, and the term that each id counts as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from plait.text.stemming import stem_word
from plait.train.corpora import corpus_batches
from plait.train.tokenization import TextTokenizer

BATCH_TEXTS = 1000
WORD_PREFIXES = ("▁", "Ġ")  # mark the first token of a word: SentencePiece, byte-level BPE
MIN_STEMMED_LENGTH = 3  # letters; stems of shorter words say little


def inverse_document_frequencies(
    corpora: Sequence[str],
    texts: TextTokenizer,
    n_ids: int,
    *,
    limit: int,
    terms: NDArray[np.int64] | None = None,
) -> NDArray[np.float32]:
    """(n_ids,): sqrt(log(n_texts / document frequency)), scaled to at most 1. The square root, because the weights of
    query and document are multiplied, and the product should be the IDF. Counts the first `limit` documents of each
    BEIR folder, 0 for all. An id that never occurs gets 1. With `terms` (n_ids,), ids of one term are counted as one.
    """
    terms = np.arange(n_ids) if terms is None else terms
    counts, n_texts = np.zeros(n_ids, np.int64), 0
    for batch in corpus_batches(corpora, limit=limit, size=BATCH_TEXTS, key="idf_corpora"):
        n_texts += len(batch)
        for ids in texts.read(batch, is_query=False):
            counts[np.unique(terms[ids])] += 1
    idf = np.log((n_texts + 1) / (counts[terms] + 0.5))
    scaled: NDArray[np.float64] = idf / np.log((n_texts + 1) / 0.5)
    return np.asarray(np.sqrt(scaled.clip(0, 1)), np.float32)


def stemmed_terms(vocabulary: Mapping[str, int], n_ids: int, language: str) -> NDArray[np.int64]:
    """(n_ids,): the id of the term that each id counts as, so that `cells` and `cell` are one term, as in BM25. Whole
    words with one stem share the id of the shortest; parts of words, numbers, signs and short words keep their own."""
    terms = np.arange(n_ids, dtype=np.int64)
    shared: dict[str, int] = {}
    # WordPiece marks the later tokens of a word (##), so its first tokens have no prefix.
    prefix = next((mark for mark in WORD_PREFIXES if any(token.startswith(mark) for token in vocabulary)), "")
    for token, number in sorted(vocabulary.items(), key=lambda item: (len(item[0]), item[0])):
        word = token.removeprefix(prefix)
        is_word = token.startswith(prefix) and word.isalpha() and len(word) >= MIN_STEMMED_LENGTH
        if is_word and number < n_ids:
            terms[number] = shared.setdefault(stem_word(word, language), number)
    return terms
