"""Forms of one word as one term: `cells` and `cell` are the same to the sparse strand, as they are to BM25."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from plait.text.stemming import stem_word

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
