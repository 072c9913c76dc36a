"""What all integrations share: an index that is given or opened by path, and the text and metadata of a hit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from plait.checks import shown
from plait.errors import ConfigError
from plait.index import Index, open_index
from plait.records import Hit
from plait.search.stored_embeddings import stored_embeddings
from plait.searcher import SearchRequest

IndexOrPath = Index | str | os.PathLike[str]
Content = Literal["document", "passages"]  # what the text of a result is
CONTENTS: tuple[Content, ...] = get_args(Content)
PASSAGE_BREAK = "\n\n"


def as_index(index: IndexOrPath, **options: Any) -> Index:
    """The given index, or the one at a path; `options` are those of `plait.open` and need a path."""
    if isinstance(index, Index):
        if options:
            raise ConfigError(f"{', '.join(sorted(options))}: these options open an index by its path; got an open one")
        return index
    if isinstance(index, str | os.PathLike):
        return open_index(Path(index), **options)
    raise ConfigError(f"index must be a plait.Index or the path of one; got {type(index).__name__}: {shown(index)}")


def check_content(content: object) -> None:
    if content not in CONTENTS:
        raise ConfigError(f"content is {shown(content)}; it must be one of {', '.join(CONTENTS)}")


def check_search(search: Mapping[str, Any]) -> None:
    """Refuses keywords that `Index.search` does not take, or whose values it refuses, before the first search."""
    try:
        SearchRequest(**search)
    except TypeError as error:
        raise ConfigError(f"Index.search does not take these options: {error}") from None


def hit_text(hit: Hit, content: Content) -> str:
    """The whole text of the document, or its best passages in the order of the text."""
    if content == "document":
        return hit.text
    passages = sorted(hit.passages, key=lambda passage: passage.span.start)
    return PASSAGE_BREAK.join(passage.text for passage in passages)


def hit_metadata(hit: Hit) -> dict[str, Any]:
    """The metadata of the document, and what the search adds: score, title, headings and location. A field of the
    document that has such a name is kept."""
    added: dict[str, Any] = {"score": hit.score}
    if hit.title:
        added["title"] = hit.title
    if hit.headings:
        added["headings"] = list(hit.headings)
    if hit.location:
        added["location"] = hit.location
    return {**added, **hit.metadata}


def dense_vectors(index: Index, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """The stored dense vector of each document, the mean of those of its passages; unknown ids are left out."""
    if index.spec.dense is None:
        raise ConfigError(f"{index.path} has no dense vectors, which this call compares; use a model that makes them")
    snapshot = index.snapshot
    numbers = snapshot.lookup(list(ids))
    stored = snapshot.fetch(list(numbers.values()))
    vectors = [stored_embeddings(snapshot, document, {"dense"}).dense for document in stored]
    return {id: vector[0] for id, vector in zip(numbers, vectors, strict=True) if vector is not None}


def plain_search(search: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of `Index.search`, checked. Queries of a framework are plain text unless `syntax` is given: a question
    mark, a colon or a quote in a question of a user or of a language model is no operator."""
    options = {"syntax": False, **(search or {})}
    check_search(options)
    return options
