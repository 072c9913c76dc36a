"""Documents whose name is the query: an id, a title, or an identifier such as `json.loads`.

Words alone cannot tell `json.loads` from `json.load`: the full text stems both to the same words. A name is therefore
compared letter by letter. Each document whose name the query is gets a strength from 0 to 1, and its score moves that
share of the way to the highest score.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from plait.search.ranking import Ranking, best_first
from plait.storage.catalogue import placeholders
from plait.storage.deletes import not_deleted
from plait.storage.snapshot import Snapshot
from plait.storage.validate import MAX_ID

NAME = "name"  # of the part in explanations
ID, TITLE, LAST_PART = 0.98, 0.95, 0.6  # strengths: the query is the id, the title, the last part of a dotted name
WITHIN = 0.5  # of these, if the name is one word of a longer query
OTHER_CASE = 0.97  # of these, if only the case differs
MAX_WORDS = 16  # of a query that may be a title
MAX_IDENTIFIERS = 3  # of a longer query that are looked up
MAX_TITLES = 500  # that are compared with a name

_IDENTIFIER = re.compile(r"[^\W\d]\w*(?:\.\w+)*(?:\(\))?")
_IS_CODE = re.compile(r"\w[._]\w|[a-z][A-Z]|\(\)$")


def find_names(snapshot: Snapshot, given: str, text: str) -> dict[int, float]:
    """The documents whose name is the query, or is an identifier within it, with their strengths. `given` is the query
    as the caller wrote it, `text` the same without operators and misspelt words."""
    whole = text.strip()
    strengths = _named(snapshot, whole, ids=[given.strip(), whole])
    words = whole.split()
    if len(words) > 1 and not strengths:
        identifiers = [word for word in _IDENTIFIER.findall(whole) if _IS_CODE.search(word)]
        for identifier in dict.fromkeys(identifiers[:MAX_IDENTIFIERS]):
            for doc, strength in _named(snapshot, identifier, ids=[identifier]).items():
                strengths[doc] = max(strengths.get(doc, 0.0), WITHIN * strength)
    return strengths


def lift(ranking: Ranking, strengths: Mapping[int, float], highest: float) -> Ranking:
    """The ranking with named documents moved up: score + strength * (highest - score), which keeps scores below
    `highest`. What is added is the gain of the list `name`."""
    strength = np.array([strengths.get(doc, 0.0) for doc in ranking.docs.tolist()])
    if not strength.any():
        return ranking
    before = ranking.scores.astype(np.float64)
    gains = strength * (highest - before)
    scores = (before + gains).astype(np.float32)
    top = best_first(ranking.docs, scores, np.arange(len(ranking)), len(ranking))
    order = top.rows
    named = np.where(strength > 0, strength, np.nan).astype(np.float32)[order]
    ranks = np.zeros(len(order), np.int64)
    ranks[strength[order] > 0] = np.arange(1, np.count_nonzero(strength) + 1)
    known = ranking.gains or {name: part.astype(np.float64) for name, part in ranking.parts.items()}
    known_ranks = ranking.ranks or {name: np.arange(1, len(order) + 1) for name in ranking.parts}
    return replace(
        ranking,
        docs=top.docs,
        scores=top.scores,
        rows=ranking.rows[order],
        parts={**{name: part[order] for name, part in ranking.parts.items()}, NAME: named},
        ranks={**{name: values[order] for name, values in known_ranks.items()}, NAME: ranks},
        gains={**{name: values[order] for name, values in known.items()}, NAME: gains[order]},
    )


def _named(snapshot: Snapshot, name: str, *, ids: list[str]) -> dict[int, float]:
    """The documents of this name."""
    strengths: dict[int, float] = {}
    wanted = [id for id in dict.fromkeys(ids) if id and len(id) <= MAX_ID and "\x00" not in id]
    for doc in snapshot.lookup(wanted).values() if wanted else ():
        strengths[doc] = ID
    name = name.removesuffix("()")
    for doc, title in _titles(snapshot, name):
        strengths[doc] = max(strengths.get(doc, 0.0), _strength(name, title))
    return {doc: strength for doc, strength in strengths.items() if strength}


def _titles(snapshot: Snapshot, name: str) -> list[tuple[int, str]]:
    """Documents whose title may have this name, with their titles: titles that begin with it, and titles without
    spaces that have it somewhere."""
    if not name or len(name.split()) > MAX_WORDS:
        return []
    phrase = snapshot.analyser.phrase(name)
    if not phrase:
        return []
    docs: dict[int, None] = {}
    expressions = [f"title : ^ {phrase}"]
    if " " not in name:
        expressions.append(f"title : {phrase}")
    for expression in expressions:
        sql = f"SELECT rowid FROM words WHERE words MATCH ? AND {not_deleted('rowid')} LIMIT {MAX_TITLES}"
        docs.update((doc, None) for (doc,) in snapshot.catalogue.rows(sql, [expression]))
    if not docs:
        return []
    numbers = list(docs)
    sql = f"SELECT doc, title FROM documents WHERE doc IN ({placeholders(len(numbers))})"
    return [(doc, str(title)) for doc, title in snapshot.catalogue.rows(sql, numbers)]


def _strength(name: str, title: str) -> float:
    """How exactly a title is a name: `json.loads` is the name of `json.loads(s, cls)`, and `loads` its last part."""
    title = " ".join(title.split())
    before_parameters = title.split("(")[0].strip()
    for candidate, strength in (
        (title, TITLE),
        (before_parameters, TITLE),
        (before_parameters.rpartition(".")[2] if " " not in before_parameters else "", LAST_PART),
    ):
        if candidate == name:
            return strength
        if candidate.casefold() == name.casefold():
            return OTHER_CASE * strength
    return 0.0
