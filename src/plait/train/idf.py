"""How rare each id of a vocabulary is: counted once over corpora, and given to the sparse head."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.encode.chunking import with_title
from plait.errors import InputError
from plait.evaluate.dataset_files import find_file
from plait.readers import documents_from
from plait.text.stemming import stem_word
from plait.train.tokenization import Texts

_BEGINNINGS = ("▁", "Ġ")  # what the first token of a word begins with: SentencePiece, byte-level BPE
_SHORTEST = 3  # letters: the stems of shorter words say little


def terms_of_forms(vocabulary: Mapping[str, int], n_ids: int, language: str) -> NDArray[np.int64]:
    """(n_ids,): for each id the id whose term it counts as. Whole words of one stem share that of the shortest among
    them; pieces of words, figures, signs and short words are their own."""
    terms = np.arange(n_ids, dtype=np.int64)
    shared: dict[str, int] = {}
    # WordPiece marks what goes on in a word (##), and so its words begin with nothing.
    beginning = next((own for own in _BEGINNINGS if any(token.startswith(own) for token in vocabulary)), "")
    for token, number in sorted(vocabulary.items(), key=lambda own: (len(own[0]), own[0])):
        word = token.removeprefix(beginning)
        is_word = token.startswith(beginning) and word.isalpha() and len(word) >= _SHORTEST
        if is_word and number < n_ids:
            terms[number] = shared.setdefault(stem_word(word, language), number)
    return terms


TEXTS_AT_ONCE = 1000


def rarity(
    corpora: Sequence[str], texts: Texts, n_ids: int, *, limit: int, forms: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """(n_ids,): the square root of the logarithm of texts over texts with the id, as a part of the largest. The root,
    because query and document both have it, and their product is to be the logarithm. The first `limit` documents
    of each BEIR folder are counted, 0 for all. An id that none has is as rare as can be; with `forms` (n_ids,), an id
    is as rare as the term it counts as."""
    terms = np.arange(n_ids) if forms is None else forms
    counts, n_texts = np.zeros(n_ids, np.int64), 0
    for folder in corpora:
        for some in _batches(_documents(folder, limit)):
            n_texts += len(some)
            for ids in texts.read(some, is_query=False):
                counts[np.unique(terms[ids])] += 1
    found = np.log((n_texts + 1) / (counts[terms] + 0.5))
    part: NDArray[np.float64] = found / np.log((n_texts + 1) / 0.5)
    return np.asarray(np.sqrt(part.clip(0, 1)), np.float32)


def _documents(folder: str, limit: int) -> Iterable[str]:
    corpus = find_file(Path(folder), "corpus.jsonl")
    if corpus is None:
        raise InputError(f"there is no corpus in {folder}; rarity is counted over the documents of BEIR folders")
    texts = (with_title(document.title, document.text) for document in documents_from([corpus]))
    return itertools.islice(texts, limit or None)


def _batches(texts: Iterable[str]) -> Iterable[list[str]]:
    given = iter(texts)
    while some := list(itertools.islice(given, TEXTS_AT_ONCE)):
        yield some
