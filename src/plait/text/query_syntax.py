"""The operators of text queries.

    "exact phrase"      documents that contain the phrase
    -word  -"phrase"    documents that do not contain it
    title:word          documents with the word in their title; any metadata field works the same way
    comp*               documents with a word that begins with these letters

Whatever is not clearly an operator is plain text: an unbalanced quote, a hyphen within a word or before a number, a
colon after a word that is no field. A query of many words is a pasted text, and all of it is plain.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_WORDS, MAX_CHARS = 32, 1000  # of a query with operators
MIN_PREFIX = 2  # characters before the star
MIN_EXCLUDED = 2  # characters of an excluded word: `-v` is an option of a command more often than an operator
ANY_FIELD = ""  # title and text
TEXT_FIELDS = ("title", "text")  # the fields that the full text has

_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"'})
_AFTER = r"(?=[\s.,;!?)]|$)"  # what may follow an operator
_OPERATOR = re.compile(
    r"(?<!\S)"
    r"(?P<minus>-)?"
    r"(?:(?P<field>[^\W\d][\w.-]*):)?"
    r"(?:\"(?P<phrase>[^\"\n]*[^\W_][^\"\n]*)\"" + _AFTER + r"|(?P<word>[^\W_](?:[\w.'’-]*\w)?)(?P<star>\*)?"
    r"(?:" + _AFTER + r"))"
)


@dataclass(frozen=True, slots=True)
class Clause:
    """What a document must contain, or must not."""

    words: str
    field: str = ANY_FIELD
    is_prefix: bool = False

    def __str__(self) -> str:
        words = f"{self.words}*" if self.is_prefix else f'"{self.words}"'
        return f"{self.field}:{words}" if self.field else words


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query taken apart. Without operators, `text` and `words` are the query itself."""

    text: str  # without operators: the encoder reads it
    words: str  # the same with prefixes as `comp*`: BM25 reads it
    required: tuple[Clause, ...] = ()
    excluded: tuple[Clause, ...] = ()

    @property
    def has_operators(self) -> bool:
        return bool(self.required or self.excluded)


def parse_query(query: str, is_field: Callable[[str], bool]) -> ParsedQuery:
    """Takes a query apart. `is_field` says whether a name is a metadata field of the index; it is asked only for names
    that stand before a colon."""
    plain = ParsedQuery(query, query)
    # Most queries have no operator: a look at single characters is faster than the pattern.
    straight = query if query.isascii() else query.translate(_QUOTES)
    if not any(char in straight for char in '"-:*') or len(query) > MAX_CHARS or len(query.split()) > MAX_WORDS:
        return plain
    required: list[Clause] = []
    excluded: list[Clause] = []
    text: list[str] = []
    words: list[str] = []
    end = 0
    for match in _OPERATOR.finditer(straight):
        clause = _clause(match, is_field)
        if clause is None:
            continue
        for parts in (text, words):
            parts.append(straight[end : match.start()])
        end = match.end()
        if match["minus"]:
            excluded.append(clause)
            continue
        required.append(clause)
        if clause.field in (ANY_FIELD, *TEXT_FIELDS):
            text.append("" if clause.is_prefix else clause.words)
            words.append(f"{clause.words}*" if clause.is_prefix else clause.words)
    if not required and not excluded:
        return plain
    for parts in (text, words):
        parts.append(straight[end:])
    searched = " ".join("".join(words).split())
    encoded = " ".join("".join(text).split()) or " ".join(clause.words for clause in required)
    if not any(char.isalnum() for char in encoded):
        return plain  # nothing is left to search for
    return ParsedQuery(encoded, searched or encoded, tuple(required), tuple(excluded))


def _clause(match: re.Match[str], is_field: Callable[[str], bool]) -> Clause | None:
    """The clause of one match; None if it is plain text after all."""
    minus, field, phrase, word = match["minus"], match["field"] or ANY_FIELD, match["phrase"], match["word"]
    is_prefix = bool(match["star"])
    if field and not (field.lower() in TEXT_FIELDS or is_field(field)):
        return None
    field = field.lower() if field.lower() in TEXT_FIELDS else field
    if phrase is not None:
        return Clause(" ".join(phrase.split()), field)
    if is_prefix and (len(word) < MIN_PREFIX or not word.isalnum()):
        return None
    if minus and not field and (len(word) < MIN_EXCLUDED or not word[0].isalpha()):
        return None  # -5 degrees, -v
    if not (minus or field or is_prefix):
        return None  # a plain word
    return Clause(word, field, is_prefix)
