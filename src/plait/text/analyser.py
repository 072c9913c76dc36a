"""How text becomes the words of the full-text index, the same for documents and for queries.

SQLite's tokenizer does most: it splits at what is not a letter, a digit or a mark, folds case and accents, and stems
English. Here is what it lacks: compatible forms made one, scripts written without spaces cut into pairs of characters,
and the stems of other languages, for an index that names its language. The result must not change while an index lives,
for SQLite deletes a document's words by being told them again; hence Unicode 3.2, which Python keeps frozen, and a
version in the catalogue.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from plait.text.stemming import language_of, stem_words
from plait.text.stopwords import STOPWORDS

# Rules 1 are those of an index without a language, rules 2 those of one with it, which older versions of plait lack.
PLAIN_VERSION, VERSION = 1, 2
# Marks belong to words: without Mn and Mc, Hindi and Thai fall apart at every vowel sign.
_WORDS = "unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
# A word asked for twice weighs double, as BM25 has it. A document pasted as a query has some words dozens of times:
# each time costs another reading of their lists, and beyond this number they lead away from the rest of the query.
MOST_TIMES = 4

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


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word of a query, as FTS5 is to look for it."""

    expression: str
    times: int  # that it weighs

    @property
    def word(self) -> str:
        """As the tokenizer is to see it."""
        return self.expression.split('"')[1]

    @property
    def repeated(self) -> str:
        """As often as it weighs: FTS5 adds up the scores of all parts of an expression."""
        return " OR ".join([self.expression] * self.times)

    @property
    def is_prefix(self) -> bool:
        return self.expression.endswith("*")


@dataclass(frozen=True, slots=True)
class Analyser:
    """The analysis of one index."""

    language: str | None = None  # what to stem; None stems English, and is for texts of any language

    def __post_init__(self) -> None:
        object.__setattr__(self, "language", language_of(self.language))

    @property
    def tokenizer(self) -> str:
        """What SQLite makes of the words that it is given."""
        return _WORDS if self.language is not None else f"porter {_WORDS}"

    @property
    def version(self) -> int:
        return PLAIN_VERSION if self.language is None else VERSION

    def analyse(self, text: str) -> str:
        """The text as the tokenizer is to see it."""
        return self.stemmed(_settled(text))

    def words(self, text: str) -> set[str]:
        """The words of a text, near to what the index makes of them: for telling which text has most of a query's."""
        return {word.casefold() for word in _split(self.analyse(text))}

    def match_terms(self, query: str) -> dict[str, QueryTerm]:
        """The words of a query and how each is found. Stop words count only in a query that has nothing else: "to be or
        not to be" is still found.

        Words hold letters, digits and marks alone, and are quoted, so that no operator of FTS5 can be smuggled in.
        """
        return dict(_match_terms(self, query))

    def stemmed(self, settled: str) -> str:
        """The words of a text that is analysed but for this last step."""
        return settled if self.language is None else stem_words(settled, self.language)


@lru_cache(maxsize=64)  # a hybrid search asks twice
def _match_terms(analyser: Analyser, query: str) -> list[tuple[str, QueryTerm]]:
    words = Counter(word for word in _split(_settled(query)) if any(map(_is_letter_or_digit, word)))
    # The last character of a run is there for documents; in a query the pair before it says more.
    tails = {word[1] for word in words if len(word) == 2 and _is_spaceless(word)}
    asked = {word: n_times for word, n_times in words.items() if word not in tails}
    # The list is English, and has words of other languages among it that mean something there.
    telling = asked if analyser.language else {word: n for word, n in asked.items() if word.lower() not in STOPWORDS}
    return [
        (word, QueryTerm(_term(analyser.stemmed(word)), min(n_times, MOST_TIMES)))
        for word, n_times in (telling or asked).items()
    ]


PLAIN = Analyser()


def _settled(text: str) -> str:
    """Compatible forms made one, and pairs of characters where words are not spaced."""
    if text.isascii():
        return text
    settled = re.sub(_UNSETTLED, lambda found: unicodedata.ucd_3_2_0.normalize("NFKC", found[0]), text)
    return re.sub(_RUN, _pairs, settled)


def _split(settled: str) -> list[str]:
    if settled.isascii():
        return re.findall("[A-Za-z0-9]+", settled)
    return "".join(char if _is_word_char(char) else " " for char in settled).split()


def _pairs(found: re.Match[str]) -> str:
    """Overlapping pairs of a run, then its last character: each character of the run so begins some word."""
    run = found[0]
    pairs = [run[start : start + 2] for start in range(len(run))]
    return f" {' '.join(pairs)} "


def _term(word: str) -> str:
    # One such character on its own asks for every pair that begins with it: 茶 finds 茶道.
    return f'"{word}" *' if len(word) == 1 and _is_spaceless(word) else f'"{word}"'


def _is_spaceless(word: str) -> bool:
    return not word.isascii() and re.fullmatch(_RUN, word) is not None


def _is_word_char(char: str) -> bool:
    return unicodedata.category(char)[0] in "LNM" or unicodedata.category(char) == "Co"


def _is_letter_or_digit(char: str) -> bool:
    return unicodedata.category(char)[0] in "LN" or unicodedata.category(char) == "Co"
