"""The encoder protocol: text to embeddings. Any object with these members works; plait's is `OnnxEncoder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from plait.embeddings import Embeddings
from plait.records import Span

OnBatch = Callable[[int, int], None]  # texts done, texts in all
# The fingerprints of encoders that an index cannot load again by itself begin so: see `plait.adapters`.
LIVE = "live:"


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    """The kinds of embeddings and their sizes; None is a kind that is absent."""

    dense: int | None = None  # dimensions
    sparse: int | None = None  # vocabulary size
    multi: int | None = None  # dimensions of each vector
    fixed: int | None = None  # multi vectors of every document, where the number does not depend on its length

    def sizes(self) -> dict[str, int]:
        """The kinds that are present, with their sizes."""
        sizes = {"dense": self.dense, "sparse": self.sparse, "multi": self.multi}
        return {kind: size for kind, size in sizes.items() if size is not None}


class Encoder(Protocol):
    """Encodes queries and documents.

    An encoder may also have a `chunker`, a `plait.encode.chunking.Chunker` that fits its input length; without one,
    long documents are split by words. An encoder whose fingerprint is measured, and so not equal to the last digit each
    time, also has `matches(fingerprint)`: whether an index with that fingerprint was built with it.
    """

    @property
    def fingerprint(self) -> str:
        """Identifies the weights and the text processing. The index stores it; a mismatch is an error."""

    @property
    def spec(self) -> EmbeddingSpec: ...

    def encode_queries(self, texts: Sequence[str]) -> Embeddings: ...

    def encode_documents(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> Embeddings:
        """The embeddings of passages. The encoder may call `on_batch` to report progress."""


@runtime_checkable
class TokenReader(Protocol):
    """An encoder that knows the token of each multi vector. Explanations use it."""

    def tokens(self, text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        """(token, span within the text) for each multi vector of the text; special tokens have an empty span."""


@runtime_checkable
class TermReader(Protocol):
    """An encoder that knows the names of its sparse terms. Explanations use it."""

    def term(self, number: int) -> str:
        """The token of a term id."""
