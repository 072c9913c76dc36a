"""What a text query asks for: words to search, conditions on documents, corrected words and names.

`understand` reads a query once, before it is encoded. Everything here depends on the query and the index alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from plait.encode.protocol import TokenReader
from plait.locks import ForkSafeLock
from plait.records import Span
from plait.search.filtering import DocFilter
from plait.search.names import find_names
from plait.storage.deletes import not_deleted
from plait.storage.snapshot import Snapshot
from plait.storage.validate import RESERVED
from plait.text.analyser import Analyser
from plait.text.query_syntax import TEXT_FIELDS, Clause, ParsedQuery, parse_query
from plait.text.spelling import can_be_misspelt, one_edit_variants

MAX_FIELD_DOCUMENTS = 1000  # documents whose metadata says which fields there are
MAX_CORRECTED = 3  # words of a query
MAX_VARIANTS = 8  # of a word, that documents have, among which one is chosen
_WORD = re.compile(r"[^\W\d_]+")
NO_NAMES: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Correction:
    """A word of the query that no document has, and the word that was searched instead."""

    given: str
    corrected: str


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A query as the stages of a search read it."""

    given: str
    text: str  # the encoder reads it: without operators, misspelt words corrected
    words: str  # BM25 reads it: the same, with prefixes as `comp*`
    required: tuple[Clause, ...] = ()
    excluded: tuple[Clause, ...] = ()
    corrections: tuple[Correction, ...] = ()
    names: Mapping[int, float] = field(default_factory=lambda: NO_NAMES)  # by document: see plait.search.names

    @property
    def has_conditions(self) -> bool:
        return bool(self.required or self.excluded)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The operators, as a person writes them."""
        return (*map(str, self.required), *(f"-{clause}" for clause in self.excluded))


class WordFacts(Protocol):
    """What reading a query needs to know of an index, or of a collection of several."""

    @property
    def analyser(self) -> Analyser: ...

    def field_names(self) -> frozenset[str]:
        """The metadata fields of the first documents."""

    def absent(self, words: Sequence[str]) -> list[str]:
        """The words that no document has."""

    def support(self, variants: Sequence[str], known: Sequence[str]) -> list[tuple[int, int]]:
        """For each word: the documents with it and all `known` expressions, and the documents with it."""

    def names(self, given: str, text: str) -> Mapping[int, float]:
        """See plait.search.names.find_names."""


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """The facts of one index."""

    snapshot: Snapshot

    @property
    def analyser(self) -> Analyser:
        return self.snapshot.analyser

    def field_names(self) -> frozenset[str]:
        return _field_names(self.snapshot)

    def absent(self, words: Sequence[str]) -> list[str]:
        return _absent(self.snapshot, words)

    def support(self, variants: Sequence[str], known: Sequence[str]) -> list[tuple[int, int]]:
        return [_support(self.snapshot, variant, known) for variant in variants]

    def names(self, given: str, text: str) -> Mapping[int, float]:
        return find_names(self.snapshot, given, text)


def understand(
    index: Snapshot | WordFacts,
    query: str,
    *,
    syntax: bool = True,
    words: bool = True,
    correct: bool = True,
    reader: TokenReader | None = None,
) -> TextQuery:
    """Reads a query. Without `syntax` it has no operators. Without `words`, for a search that reads none, misspelt
    words and names stay as they are, and only conditions count. Without `correct` misspelt words stay, as for a query
    whose vectors are made already. `reader` knows which words are spelt as they should be, also if no document has
    them."""
    facts = SnapshotFacts(index) if isinstance(index, Snapshot) else index
    parsed = parse_query(query, lambda name: name in facts.field_names()) if syntax else ParsedQuery(query, query)
    understood = TextQuery(query, parsed.text, parsed.words, parsed.required, parsed.excluded)
    if not words:
        return understood
    corrections = _corrections(facts, parsed, reader) if correct else ()
    if corrections:
        understood = replace(
            understood,
            text=_corrected(parsed.text, corrections),
            words=_corrected(parsed.words, corrections),
            corrections=corrections,
        )
    # An operator says what is wanted better than a name would.
    names = NO_NAMES if parsed.has_operators else facts.names(query, understood.text)
    return replace(understood, names=names) if names else understood


# -- conditions


def restrict(snapshot: Snapshot, query: TextQuery, within: DocFilter | None) -> DocFilter | None:
    """The documents of `within` that meet the conditions of a query."""
    if not query.has_conditions:
        return within
    docs = None if within is None else within.docs
    for clause in query.required:
        matching = clause_documents(snapshot, clause)
        docs = matching if docs is None else np.intersect1d(docs, matching, assume_unique=True)
    if docs is None:
        docs = snapshot.matching("1", ())
    for clause in query.excluded:
        docs = np.setdiff1d(docs, clause_documents(snapshot, clause), assume_unique=True)
    return DocFilter(snapshot.segments, docs)


def clause_documents(snapshot: Snapshot, clause: Clause) -> NDArray[np.int64]:
    """The documents that a clause accepts, ascending."""
    if clause.field and clause.field not in TEXT_FIELDS:
        return _field_documents(snapshot, clause)
    phrase = snapshot.analyser.phrase(clause.words, is_prefix=clause.is_prefix)
    expression = f"{clause.field} : {phrase}" if clause.field else phrase
    sql = f"SELECT group_concat(rowid) FROM words WHERE words MATCH ? AND {not_deleted('rowid')}"
    ((numbers,),) = snapshot.catalogue.rows(sql, [expression])
    return np.sort(np.fromstring(numbers or "", np.int64, sep=","))


# The marks between words that a metadata value may have; they become spaces.
_MARKS = ",.;:/_-()'\""


def _field_documents(snapshot: Snapshot, clause: Clause) -> NDArray[np.int64]:
    """Documents whose metadata field has the value, or has it among its words or elements; case does not matter."""
    value = "lower(CAST(atom AS TEXT))"
    spaced = value
    for mark in _MARKS:
        spaced = f"replace({spaced}, '{mark.replace(chr(39), chr(39) * 2)}', ' ')"
    words = " ".join("".join(" " if char in _MARKS else char for char in clause.words.lower()).split())
    path = "$." + ".".join(json.dumps(part) for part in clause.field.split("."))
    last = "" if clause.is_prefix else " "
    where = (
        f"EXISTS (SELECT 1 FROM json_each(metadata, ?) WHERE atom IS NOT NULL AND ({value} = ? OR "
        f"instr(' ' || {spaced} || ' ', ?)))"
    )
    return snapshot.matching(where, [path, clause.words.lower(), f" {words}{last}"])


_fields: WeakKeyDictionary[Snapshot, frozenset[str]] = WeakKeyDictionary()
_fields_lock = ForkSafeLock()


def _field_names(snapshot: Snapshot) -> frozenset[str]:
    """The metadata fields of the first documents."""
    with _fields_lock:
        known = _fields.get(snapshot)
    if known is None:
        sql = (
            f"SELECT DISTINCT each.key FROM (SELECT metadata FROM documents WHERE {not_deleted()} "
            f"LIMIT {MAX_FIELD_DOCUMENTS}) AS first, json_each(first.metadata) AS each"
        )
        known = frozenset(str(name) for (name,) in snapshot.catalogue.rows(sql) if name != RESERVED)
        with _fields_lock:
            _fields[snapshot] = known
    return known


# -- misspelt words


def _corrections(facts: WordFacts, parsed: ParsedQuery, reader: TokenReader | None) -> tuple[Correction, ...]:
    """For words that no document has and that are not words of the model: the variant within one edit that occurs
    together with the other words of the query in most documents, and among equals in most documents."""
    terms = facts.analyser.query_terms(parsed.words)
    absent = set(facts.absent([word for word, term in terms.items() if not term.is_prefix]))
    misspelt = [word for word in terms if word in absent and can_be_misspelt(word) and not _is_known_word(word, reader)]
    known = [term.expression for word, term in terms.items() if word not in absent]
    corrections = []
    for word in misspelt[:MAX_CORRECTED]:
        variants = one_edit_variants(word)
        missing = set(facts.absent(variants))
        present = [variant for variant in variants if variant not in missing][:MAX_VARIANTS]
        support = dict(zip(present, facts.support(present, known), strict=True))
        # Beside words that documents have, a variant must occur with them: otherwise the word is a rare one, not a
        # misspelt one.
        likely = [variant for variant in present if support[variant][0] or not known]
        if likely:
            corrections.append(Correction(word, max(likely, key=lambda variant: support[variant])))
    return tuple(corrections)


def _is_known_word(word: str, reader: TokenReader | None) -> bool:
    """Whether the model has a token for the whole word: a misspelt word is several pieces."""
    if reader is None:
        return False
    pieces = [span for _, span in reader.tokens(word.lower(), is_query=True) if span.start < span.end]
    return pieces == [Span(0, len(word))]


def _absent(snapshot: Snapshot, words: Sequence[str]) -> list[str]:
    """The words that no document has."""
    if not words:
        return []
    expressions = {word: snapshot.analyser.phrase(word) for word in words}
    sql = "SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM words WHERE words MATCH value)"
    wanted = sorted({expression for expression in expressions.values() if expression})
    absent = {value for (value,) in snapshot.catalogue.rows(sql, [json.dumps(wanted)])}
    return [word for word, expression in expressions.items() if expression in absent]


def _support(snapshot: Snapshot, variant: str, known: Iterable[str]) -> tuple[int, int]:
    phrase = snapshot.analyser.phrase(variant)
    sql = "SELECT count(*) FROM words WHERE words MATCH ?"
    together = " AND ".join([phrase, *known])
    counts = [snapshot.catalogue.rows(sql, [expression])[0][0] for expression in (together, phrase)]
    return counts[0], counts[1]


def _corrected(text: str, corrections: Sequence[Correction]) -> str:
    by_word = {correction.given.casefold(): correction.corrected for correction in corrections}
    return _WORD.sub(lambda match: by_word.get(match[0].casefold(), match[0]), text)
