"""How text becomes the words of the full-text index, the same for documents and for queries.

SQLite's tokenizer does most: it splits at what is not a letter, a digit or a mark, folds case and accents, and stems
English. Here is what it lacks: compatible forms made one, and scripts written without spaces cut into pairs of
characters. The result must not change while an index lives, for SQLite deletes a document's words by being told them
again; hence Unicode 3.2, which Python keeps frozen, and a version in the catalogue.
"""

from __future__ import annotations

import re
import unicodedata

from plait.index.stopwords import STOPWORDS

VERSION = 1
# Marks belong to words: without Mn and Mc, Hindi and Thai fall apart at every vowel sign.
TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"

# Characters that normalisation leaves alone and that join nothing before them; the rest goes through it, which is slow.
_INERT = (
    "\x00-\x7f\u00c0-\u00ff\u0e01-\u0e32\u0e34-\u0e37\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
)
_SPACELESS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ecf\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u109d"  # Myanmar
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
    "\u3005-\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # kana
    "\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"  # Hangul
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # Han
)


# Compiling these takes longer than a whole search, so each is compiled when a text first needs it; `re` keeps them.
_UNSETTLED = f"(?s:.?)[^{_INERT}]+"
_RUN = f"[{_SPACELESS}]+"


def analyse(text: str) -> str:
    """The text as the tokenizer is to see it."""
    if text.isascii():
        return text
    settled = re.sub(_UNSETTLED, lambda found: unicodedata.ucd_3_2_0.normalize("NFKC", found[0]), text)
    return re.sub(_RUN, _pairs, settled)


def _pairs(found: re.Match[str]) -> str:
    """Overlapping pairs of a run, then its last character: each character of the run so begins some word."""
    run = found[0]
    pairs = [run[start : start + 2] for start in range(len(run))]
    return f" {' '.join(pairs)} "


def match_expression(query: str) -> str | None:
    """An FTS5 expression that finds any of the query's words, or None if it has none. Stop words count only in a query
    that has nothing else: "to be or not to be" is still found.

    The words hold letters, digits and marks alone, each in quotes, so that no operator of FTS5 can be smuggled in.
    """
    return " OR ".join(match_terms(query).values()) or None


def match_terms(query: str) -> dict[str, str]:
    """The words of `match_expression`, and the part of the expression that finds each."""
    kept = "".join(char if _is_word_char(char) else " " for char in analyse(query))
    words = dict.fromkeys(word for word in kept.split() if any(map(_is_letter_or_digit, word)))
    # The last character of a run is there for documents; in a query the pair before it says more.
    tails = {word[1] for word in words if len(word) == 2 and _is_spaceless(word)}
    asked = [word for word in words if word not in tails]
    telling = [word for word in asked if word.lower() not in STOPWORDS]
    return {word: _term(word) for word in telling or asked}


def _term(word: str) -> str:
    # One such character on its own asks for every pair that begins with it: 茶 finds 茶道.
    return f'"{word}" *' if len(word) == 1 and _is_spaceless(word) else f'"{word}"'


def _is_spaceless(word: str) -> bool:
    return not word.isascii() and re.fullmatch(_RUN, word) is not None


def _is_word_char(char: str) -> bool:
    return unicodedata.category(char)[0] in "LNM" or unicodedata.category(char) == "Co"


def _is_letter_or_digit(char: str) -> bool:
    return unicodedata.category(char)[0] in "LN" or unicodedata.category(char) == "Co"
