"""PyLate's call shapes over plait: `models.ColBERT`, `indexes.PLAID`, `indexes.Voyager`, `retrieve.ColBERT`,
`retrieve.XTR`, `rank.rerank` and `rank.score_xtr`. Signatures and results are those of PyLate 1.6; see
`plait.compat`."""

from __future__ import annotations

from plait.compat.pylate import indexes, models, rank, retrieve

__all__ = ["indexes", "models", "rank", "retrieve"]
