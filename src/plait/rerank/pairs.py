"""Pairs of texts to token ids, both sides kept however long they are.

The frame is what the tokeniser itself puts around a pair. A pair that is too long is cut by one rule: the query may
always have `query_length` tokens, and more where the document leaves room; the document has all the rest. Each keeps
its beginning, so neither side can push the other out. With a `document_length` each text is cut by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.encode.tokenizer import TEXTS_AT_ONCE
from plait.errors import InputError, ModelError
from plait.rerank.cross_card import Markers, PairReading

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Pair = tuple[str, str]  # query, document


class PairFrame(Protocol):
    """What reading pairs needs to know of a model: a card has it, and so has one that is still being trained."""

    @property
    def name(self) -> str: ...

    @property
    def pair(self) -> PairReading: ...

    @property
    def markers(self) -> Markers | None: ...


@dataclass(frozen=True, slots=True)
class PairIds:
    """Token ids of pairs, and which side each token is of: 0 the query's, 1 the document's."""

    ids: list[NDArray[np.int64]]
    sides: list[NDArray[np.int64]]
    cut: list[bool]  # whether either side was cut


class PairReader:
    """Reads pairs as one model was taught to."""

    def __init__(self, tokenizer: Tokenizer, frame: PairFrame) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer, self._pair = tokenizer, frame.pair
        self._head, self._middle, self._tail, self._middle_side = _frame_of(tokenizer, frame.name)
        markers = frame.markers
        self._query_end = [self._token_id(markers.query, frame.name)] if markers else []
        self._document_end = [self._token_id(markers.document, frame.name)] if markers else []
        self._marker_ids = {*self._query_end, *self._document_end}
        self._query_prefix = self._prefix_ids(frame.pair.query_prefix)
        self._document_prefix = self._prefix_ids(frame.pair.document_prefix)
        if self.room <= frame.pair.query_length:
            raise ModelError(
                f"{frame.name} reads pairs of {frame.pair.length} tokens, {self.room} of them of the texts, and gives "
                f"{frame.pair.query_length} to the query; the document needs some too"
            )
        if self.room < frame.pair.query_length + frame.pair.document_length:
            raise ModelError(
                f"{frame.name} gives {frame.pair.query_length} tokens to the query and {frame.pair.document_length} to "
                f"the document, and has {self.room} of its {frame.pair.length} for both; make the pair longer"
            )

    @property
    def room(self) -> int:
        """Tokens that the two texts may have together."""
        fixed = (self._head, self._middle, self._tail, self._query_end, self._document_end)
        return self._pair.length - sum(map(len, (*fixed, self._query_prefix, self._document_prefix)))

    @property
    def marker_ids(self) -> tuple[int, int] | None:
        """Those of the query's and of the document's marker."""
        return (self._query_end[0], self._document_end[0]) if self._query_end else None

    def read(self, pairs: Sequence[Pair]) -> PairIds:
        """The ids of each pair. A text that is in many pairs is read once."""
        bodies = self._bodies(pairs)
        read = PairIds([], [], [])
        for query, document in pairs:
            asked, held = bodies[query], bodies[document]
            n_query, n_document = self._kept(len(asked), len(held))
            left = self._head + self._query_prefix + asked[:n_query] + self._query_end
            right = self._document_prefix + held[:n_document] + self._document_end + self._tail
            read.ids.append(np.array(left + self._middle + right, np.int64))
            read.sides.append(np.array([0] * len(left) + self._middle_side + [1] * len(right), np.int64))
            read.cut.append(n_query < len(asked) or n_document < len(held))
        return read

    def _kept(self, n_query: int, n_document: int) -> tuple[int, int]:
        """How many tokens of each text stay."""
        if self._pair.document_length:
            return min(n_query, self._pair.query_length), min(n_document, self._pair.document_length)
        return shares(n_query, n_document, self.room, self._pair.query_length)

    def _bodies(self, pairs: Sequence[Pair]) -> dict[str, list[int]]:
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        for text in texts:
            _refuse_unreadable(text)
        bodies: dict[str, list[int]] = {}
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            block = texts[start : start + TEXTS_AT_ONCE]
            found = self._tokenizer.encode_batch_fast(block, add_special_tokens=False)
            bodies.update((text, self._unmarked(one.ids)) for text, one in zip(block, found, strict=True))
        return bodies

    def _unmarked(self, ids: list[int]) -> list[int]:
        """Without markers that the text itself holds: there must be one of each."""
        return [id for id in ids if id not in self._marker_ids] if self._marker_ids else ids

    def _prefix_ids(self, prefix: str) -> list[int]:
        return list(self._tokenizer.encode(prefix, add_special_tokens=False).ids) if prefix else []

    def _token_id(self, token: str, name: str) -> int:
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise ModelError(f"the card of {name} names the marker {token!r}, which its vocabulary lacks")
        return int(found)


def shares(n_query: int, n_document: int, room: int, query_length: int) -> tuple[int, int]:
    """How many tokens of a query and a document are kept in `room`."""
    kept = min(n_query, max(query_length, room - n_document))
    return kept, min(n_document, room - kept)


def _frame_of(tokenizer: Tokenizer, name: str) -> tuple[list[int], list[int], list[int], list[int]]:
    """Special tokens before, between and after the texts of a pair, and the sides of those between."""
    framed = tokenizer.encode("a", "a")
    inner = [place for place, special in enumerate(framed.special_tokens_mask) if not special]
    between = [place for place in range(inner[0], inner[-1]) if place not in inner] if inner else []
    if not between:
        raise ModelError(
            f"the tokeniser of {name} puts nothing between the texts of a pair, so a model could not tell them apart; "
            f"take the tokeniser of a model that was trained on pairs"
        )
    middle = list(range(between[0], between[-1] + 1))
    sides = [framed.type_ids[place] for place in middle]
    ids: list[int] = framed.ids
    return ids[: inner[0]], [ids[place] for place in middle], ids[inner[-1] + 1 :], sides


def _refuse_unreadable(text: object) -> None:
    if not isinstance(text, str):
        raise InputError(f"a text of a pair is of type {type(text).__name__}; cross-encoders take strings")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a text of a pair holds half of a character pair at position {error.start}; read its source again as "
            f"UTF-8, with errors='replace'"
        ) from None
