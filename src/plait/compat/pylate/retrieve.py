"""`ColBERT`: a retriever on an index, with the arguments and results of `pylate.retrieve.ColBERT`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait.checks import check_count, shown
from plait.compat.arguments import device_of, warn_unused
from plait.compat.pylate.indexes import PLAID, Voyager
from plait.compat.pylate.rank import RerankResult
from plait.errors import ConfigError


class ColBERT:
    """Retrieves documents from `indexes.PLAID` or `indexes.Voyager`."""

    default_k_token = 100
    default_batch_size = 50

    def __init__(self, index: PLAID | Voyager) -> None:
        if not isinstance(index, PLAID | Voyager):
            raise ConfigError(f"index is {shown(index)}; give an index of plait.compat.pylate.indexes")
        self.index = index

    def retrieve(
        self,
        queries_embeddings: Sequence[Any],
        k: int = 10,
        k_token: int | None = None,
        device: str | None = None,
        batch_size: int | None = None,
        subset: list[list[str]] | list[str] | None = None,
    ) -> list[list[RerankResult]]:
        """The k best documents of each query, best first. `subset` are ids: the same for all queries, or a list for
        each."""
        check_count("k", k)
        device_of("device", device)
        warn_unused("k_token", k_token, default=None, why="plait chooses candidates by whole queries")
        warn_unused("batch_size", batch_size, default=None, why="plait searches all queries at once")
        return self.index.best(queries_embeddings, k, subset)
