"""Words within one edit of a word: candidates for what a misspelt word was meant to be.

An edit is a letter too many, a letter too few, a wrong letter, or two neighbours exchanged. A word of n letters has
some 54 n such variants, so the cost is bounded and no table of the vocabulary is needed; the index says which exist.
"""

from __future__ import annotations

import unicodedata

MIN_LETTERS, MAX_LETTERS = 4, 24  # of a word that is corrected

_LATIN = "abcdefghijklmnopqrstuvwxyz"
_ALPHABETS = {
    "LATIN": _LATIN,
    "CYRILLIC": "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґ",
    "GREEK": "αβγδεζηθικλμνξοπρστυφχψως",
}


def can_be_misspelt(word: str) -> bool:
    """Whether a word is one that is corrected: letters only, neither short nor very long."""
    return MIN_LETTERS <= len(word) <= MAX_LETTERS and word.isalpha()


def one_edit_variants(word: str) -> list[str]:
    """The lower-case words within one edit of `word`, each once, without the word itself. Letters that are not of a
    known alphabet are only removed and exchanged."""
    word = word.lower()
    halves = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    letters = _alphabet(word)
    exchanged = [left + right[1] + right[0] + right[2:] for left, right in halves if len(right) > 1]
    removed = [left + right[1:] for left, right in halves if right]
    replaced = [left + letter + right[1:] for left, right in halves if right for letter in letters]
    added = [left + letter + right for left, right in halves for letter in letters]
    variants = dict.fromkeys([*exchanged, *removed, *replaced, *added])
    variants.pop(word, None)
    return list(variants)


def _alphabet(word: str) -> str:
    """The letters of the script of a word."""
    if word.isascii():
        return _LATIN
    script = unicodedata.name(word[0], "").split(" ")[0]
    return _ALPHABETS.get(script, "")
