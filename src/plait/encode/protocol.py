"""What the rest of plait asks of an encoder. Any object of this shape will do; plait's own is `OnnxEncoder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from plait.embeddings import Embeddings
from plait.records import Span

OnBatch = Callable[[int, int], None]  # texts done, texts in all


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    """Which strands there are, by their sizes; None is a strand that is absent."""

    dense: int | None = None  # dimensions
    sparse: int | None = None  # vocabulary size
    multi: int | None = None  # dimensions of each row
    fixed: int | None = None  # rows of every document in the multi strand, where a model gives always as many

    def sizes(self) -> dict[str, int]:
        """The kinds that are present, with their sizes."""
        sizes = {"dense": self.dense, "sparse": self.sparse, "multi": self.multi}
        return {kind: size for kind, size in sizes.items() if size is not None}


class Encoder(Protocol):
    """Text to strands, queries and documents apart."""

    @property
    def fingerprint(self) -> str:
        """Names the weights and the reading of the text; kept in the index, and a mismatch is an error."""

    @property
    def spec(self) -> EmbeddingSpec: ...

    def split(self, title: str, text: str) -> list[Span]:
        """The passages that a document is encoded as: spans of `text`, in order, that together cover all of it."""

    def encode_queries(self, texts: Sequence[str]) -> Embeddings: ...

    def encode_documents(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> Embeddings:
        """`on_batch` is told, as often as the encoder likes, how many of the texts are done."""


@runtime_checkable
class TokenReader(Protocol):
    """What an encoder may offer besides: which token each row of the multi strand stands for. Explanations use it."""

    def tokens(self, text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        """(surface, span within the text) for each row of the text's multi strand; an empty span stands nowhere."""


@runtime_checkable
class TermReader(Protocol):
    """What an encoder with a sparse strand may offer: what its terms are called. Explanations use it."""

    def term(self, number: int) -> str:
        """The token of a term id."""
