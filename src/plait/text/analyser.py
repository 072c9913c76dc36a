"""How text becomes the words of the full-text index, for documents and queries alike.

SQLite's tokenizer does most of it: it splits text into letters, digits and marks, folds case and accents, and stems
English. Added here: compatibility normalization (NFKC), pairs of characters for scripts written without spaces, and
stemming for an index that names another language.

The result must not change while an index lives, because FTS5 deletes the words of a document by analysing it again.
Hence Unicode 3.2, which Python keeps frozen, and a version in the catalogue.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from plait.text.stemming import stem_words, stemming_language
from plait.text.stopwords import STOPWORDS

VERSION = 1  # of the rules below; the catalogue stores it
# Marks belong to words: without Mn and Mc, Hindi and Thai are split at every vowel sign.
_TOKENIZER = "unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
# BM25 counts a repeated query word again. A document pasted as a query repeats words dozens of times: each repetition
# costs another pass over the posting list, and beyond this number it hides the rest of the query.
MAX_TERM_COUNT = 4

# Characters that normalization never changes; only the others are normalized, because it is slow.
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


# Compiling these takes longer than a search, so each is compiled when a text first needs it; `re` caches them.
_TO_NORMALIZE = f"(?s:.?)[^{_INERT}]+"
_SPACELESS_RUN = f"[{_SPACELESS}]+"
_PREFIX = r"(?<!\S)([^\W_]{2,})\*(?!\S)"  # comp*, as plait.text.query_syntax defines it


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word of a query, as an FTS5 expression."""

    expression: str
    count: int  # how often the query has it, at most MAX_TERM_COUNT

    @property
    def word(self) -> str:
        """The word inside the expression."""
        return self.expression.split('"')[1]

    @property
    def repeated(self) -> str:
        """The expression `count` times: FTS5 adds up the scores of all parts."""
        return " OR ".join([self.expression] * self.count)

    @property
    def is_prefix(self) -> bool:
        return self.expression.endswith("*")


@dataclass(frozen=True, slots=True)
class Analyser:
    """The text analysis of one index."""

    language: str | None = None  # the language to stem; None stems English and suits texts in any language

    def __post_init__(self) -> None:
        object.__setattr__(self, "language", stemming_language(self.language))

    @property
    def tokenizer(self) -> str:
        """The `tokenize` option of the FTS5 table."""
        return _TOKENIZER if self.language is not None else f"porter {_TOKENIZER}"

    def analyse(self, text: str) -> str:
        """The text to give to SQLite's tokenizer."""
        return self.stemmed(_normalized(text))

    def words(self, text: str) -> set[str]:
        """The words of a text, nearly as the index has them: to compare passages by the words of a query."""
        return {word.casefold() for word in _split(self.analyse(text))}

    def query_terms(self, query: str) -> dict[str, QueryTerm]:
        """The words of a query with their FTS5 terms. Stop words are dropped unless the query has nothing else, so "to
        be or not to be" still matches.

        Words have only letters, digits and marks, and are quoted, so a query cannot use FTS5's operators.
        """
        return dict(_query_terms(self, query))

    def phrase(self, text: str, *, is_prefix: bool = False) -> str:
        """An FTS5 expression for words that follow one another; with `is_prefix`, the last may go on. Empty if the text
        has no word."""
        if self.language is None and text.isascii() and text.isalnum():  # one word, as the variants of a misspelt one
            return f'"{text}"' + (" *" if is_prefix else "")
        words = _split(self.stemmed(_normalized(text, _phrase_pairs)))
        if not any(_is_letter_or_digit(char) for word in words for char in word):
            return ""
        more = is_prefix or (len(words[-1]) == 1 and _is_spaceless(words[-1]))
        return f'"{" ".join(words)}"' + (" *" if more else "")

    def stemmed(self, normalized: str) -> str:
        """The last step of `analyse`: stems every word if the index has a language."""
        return normalized if self.language is None else stem_words(normalized, self.language)


DEFAULT_ANALYSER = Analyser()


@lru_cache(maxsize=64)  # hybrid search analyses a query twice
def _query_terms(analyser: Analyser, query: str) -> list[tuple[str, QueryTerm]]:
    prefixes = re.findall(_PREFIX, query) if "*" in query else []
    query = re.sub(_PREFIX, " ", query) if prefixes else query
    words = Counter(word for word in _split(_normalized(query)) if any(map(_is_letter_or_digit, word)))
    # A run of characters without spaces ends with its last character alone, for documents. In a query the pair before
    # it is more specific.
    last_characters = {word[1] for word in words if len(word) == 2 and _is_spaceless(word)}
    counts = {word: count for word, count in words.items() if word not in last_characters}
    # The stop words are English; some of them mean something else in another language.
    content = counts if analyser.language else {word: n for word, n in counts.items() if word.lower() not in STOPWORDS}
    terms = [
        (word, QueryTerm(_expression(analyser.stemmed(word)), min(count, MAX_TERM_COUNT)))
        for word, count in (content if content or prefixes else counts).items()
    ]
    return [*terms, *((f"{prefix}*", QueryTerm(f'"{prefix}" *', 1)) for prefix in dict.fromkeys(prefixes))]


def _normalized(text: str, pairs: Callable[[re.Match[str]], str] | None = None) -> str:
    """NFKC, and pairs of characters for scripts without spaces."""
    if text.isascii():
        return text
    normalized = re.sub(_TO_NORMALIZE, lambda match: unicodedata.ucd_3_2_0.normalize("NFKC", match[0]), text)
    return re.sub(_SPACELESS_RUN, pairs or _pairs, normalized)


def _split(normalized: str) -> list[str]:
    if normalized.isascii():
        return re.findall("[A-Za-z0-9]+", normalized)
    return "".join(char if _is_word_char(char) else " " for char in normalized).split()


def _pairs(match: re.Match[str]) -> str:
    """Overlapping pairs of a run, then its last character, so that every character of the run begins a word."""
    run = match[0]
    pairs = [run[start : start + 2] for start in range(len(run))]
    return f" {' '.join(pairs)} "


def _phrase_pairs(match: re.Match[str]) -> str:
    """The pairs of a run without its last character: a document may go on after the phrase."""
    run = match[0]
    pairs = [run[start : start + 2] for start in range(max(len(run) - 1, 1))]
    return f" {' '.join(pairs)} "


def _expression(word: str) -> str:
    # A single character of such a script matches every pair that begins with it: 茶 matches 茶道.
    return f'"{word}" *' if len(word) == 1 and _is_spaceless(word) else f'"{word}"'


def _is_spaceless(word: str) -> bool:
    return not word.isascii() and re.fullmatch(_SPACELESS_RUN, word) is not None


def _is_word_char(char: str) -> bool:
    return unicodedata.category(char)[0] in "LNM" or unicodedata.category(char) == "Co"


def _is_letter_or_digit(char: str) -> bool:
    return unicodedata.category(char)[0] in "LN" or unicodedata.category(char) == "Co"
