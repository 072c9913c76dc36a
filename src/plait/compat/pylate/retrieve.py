"""`ColBERT` and `XTR`: retrievers on an index, with the arguments and results of `pylate.retrieve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait.checks import check_count, shown
from plait.compat.arguments import device_of, refuse, warn_unused
from plait.compat.pylate.indexes import PLAID, Voyager
from plait.compat.pylate.rank import RerankResult, score_xtr
from plait.errors import ConfigError


class ColBERT:
    """Retrieves documents from `indexes.PLAID` or `indexes.Voyager`."""

    default_k_token = 100
    default_batch_size = 50

    def __init__(self, index: PLAID | Voyager) -> None:
        self.index = _checked(index)

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


class XTR:
    """Retrieves documents from `indexes.Voyager` by the vectors that are nearest to each query vector, and by no
    others. `indexes.PLAID` scores documents in full, as in PyLate.

    A score is a sum of cosines. PyLate 1.6 sums what its index returns: cosines of ScaNN, but distances of Voyager,
    which ranks the farthest documents first.
    """

    default_k_token = 10_000
    default_batch_size = 1

    def __init__(self, index: PLAID | Voyager) -> None:
        self.index = _checked(index)

    def retrieve(
        self,
        queries_embeddings: Sequence[Any],
        k: int = 10,
        k_token: int | None = None,
        device: str | None = None,
        batch_size: int | None = None,
        subset: list[list[str]] | list[str] | None = None,
    ) -> list[list[RerankResult]]:
        """The k best documents of each query, best first; each query vector retrieves `k_token` vectors."""
        check_count("k", k)
        device_of("device", device)
        warn_unused("batch_size", batch_size, default=None, why="plait searches all queries at once")
        if isinstance(self.index, PLAID):
            warn_unused("k_token", k_token, default=None, why="plait chooses candidates by whole queries")
            return self.index.best(queries_embeddings, k, subset)
        refuse("subset", subset, default=None, why="XTR retrieves vectors of all documents; use retrieve.ColBERT")
        n_tokens = self.default_k_token if k_token is None else k_token
        check_count("k_token", n_tokens)
        nearest = self.index(queries_embeddings, k=max(n_tokens, k))
        return [
            score_xtr(ids, [(1 - row).tolist() for row in distances], k)
            for ids, distances in zip(nearest["documents_ids"], nearest["distances"], strict=True)
        ]


def _checked(index: PLAID | Voyager) -> PLAID | Voyager:
    if not isinstance(index, PLAID | Voyager):
        raise ConfigError(f"index is {shown(index)}; give an index of plait.compat.pylate.indexes")
    return index
