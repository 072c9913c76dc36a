"""A small layer to put above an encoder that is there: of joint blocks, where two texts meet, and of late layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.train.model_config import N_SMALL_HEADS


class Layer(nn.Module):
    """Attention and two dense layers, each after a norm and beside a way around."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mixed, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.wide, self.narrow = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        with torch.no_grad():  # asks as it holds: at first a token looks for tokens that are like it
            self.mixed.weight[dim : 2 * dim] = self.mixed.weight[:dim]
            self.mixed.bias[: 2 * dim] = 0.0

    def forward(self, rows: Tensor, mask: Tensor, at: Tensor | None = None) -> Tensor:
        """(items, length, dim) to the same; mask (items, length) is 1 where a token is. With `at` (items, n), only the
        tokens at these places are worked out, (items, n, dim); all are seen."""
        dim, normed = rows.shape[2], self.first(rows)
        asking, kept = (normed, rows) if at is None else (taken(normed, at), taken(rows, at))
        asked = self._heads(F.linear(asking, self.mixed.weight[:dim], self.mixed.bias[:dim]))
        held, carried = (
            self._heads(part)
            for part in F.linear(normed, self.mixed.weight[dim:], self.mixed.bias[dim:]).split(dim, dim=2)
        )
        seen = F.scaled_dot_product_attention(asked, held, carried, attn_mask=mask[:, None, None, :].bool())
        rows = kept + self.out(seen.transpose(1, 2).reshape(kept.shape))
        added: Tensor = self.narrow(F.gelu(self.wide(self.second(rows))))
        return rows + added

    @staticmethod
    def _heads(rows: Tensor) -> Tensor:
        """(items, length, dim) to (items, heads, length, dim of a head)."""
        return rows.view(rows.shape[0], rows.shape[1], N_SMALL_HEADS, -1).transpose(1, 2)


def taken(rows: Tensor, at: Tensor) -> Tensor:
    """(items, n, dim): the rows of (items, length, dim) at the places (items, n)."""
    return rows.gather(1, at.unsqueeze(2).expand(-1, -1, rows.shape[2]))
