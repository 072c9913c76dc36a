"""The two sides of a model's reading, by name."""

from __future__ import annotations

from collections.abc import Sequence

from plait.train.encoded import Tokens
from plait.train.texts import Texts


class Reading:
    """Queries and documents to tokens, as `Texts` reads them."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def queries(self, texts: Sequence[str]) -> Tokens:
        return self._texts.tokens(texts, is_query=True)

    def documents(self, texts: Sequence[str]) -> Tokens:
        return self._texts.tokens(texts, is_query=False)
