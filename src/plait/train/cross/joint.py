"""Small layers above an encoder, where every token sees both texts of a pair.

They are narrower than the encoder, and begin as nothing: what they add to the states is zero until they have learned.
So a model with them starts as good as the encoder below, and costs hardly more.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

N_HEADS = 4


class JointLayer(nn.Module):
    """Attention over both texts and two dense layers, each after a norm and beside a way around."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mixed, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.wide, self.narrow = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        with torch.no_grad():  # asks as it holds: at first a token looks for tokens that are like it
            self.mixed.weight[dim : 2 * dim] = self.mixed.weight[:dim]
            self.mixed.bias[: 2 * dim] = 0.0

    def forward(self, rows: Tensor, mask: Tensor, at: Tensor | None = None) -> Tensor:
        """(pairs, length, dim) to the same; mask (pairs, length) is 1 where a token is. With `at` (pairs, n), only the
        tokens at these places are worked out, (pairs, n, dim); all are seen."""
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
        """(pairs, length, dim) to (pairs, heads, length, dim of a head)."""
        return rows.view(rows.shape[0], rows.shape[1], N_HEADS, -1).transpose(1, 2)


class JointBlock(nn.Module):
    """States of two texts, read apart, to states of the pair."""

    def __init__(self, hidden: int, dim: int, n_layers: int = 1) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(hidden), nn.Linear(hidden, dim)
        self.side = nn.Embedding(2, dim)
        self.layers = nn.ModuleList(JointLayer(dim) for _ in range(n_layers))
        self.up = nn.Linear(dim, hidden, bias=False)
        nn.init.normal_(self.side.weight, std=0.1)
        nn.init.zeros_(self.up.weight)

    def enter(self, states: Tensor, sides: Tensor) -> Tensor:
        """(..., hidden) to (..., dim): what the layers begin with. A token's row depends on its own text alone."""
        rows: Tensor = self.down(self.norm(states)) + self.side(sides)
        return rows

    def added(self, rows: Tensor, mask: Tensor, at: Tensor | None = None) -> Tensor:
        """What the pair adds to states, from the rows of `enter`: (pairs, length, hidden), or (pairs, n, hidden) of the
        places `at` (pairs, n) alone."""
        for layer in self.layers[:-1]:
            rows = layer(rows, mask)
        found: Tensor = self.up(self.layers[-1](rows, mask, at))
        return found

    def forward(self, states: Tensor, mask: Tensor, sides: Tensor, at: Tensor | None = None) -> Tensor:
        """(pairs, length, hidden) to the same, or to (pairs, n, hidden) of the places `at` (pairs, n)."""
        kept = states if at is None else taken(states, at)
        return kept + self.added(self.enter(states, sides), mask, at)


def taken(rows: Tensor, at: Tensor) -> Tensor:
    """(pairs, n, dim): the rows of (pairs, length, dim) at the places (pairs, n)."""
    return rows.gather(1, at.unsqueeze(2).expand(-1, -1, rows.shape[2]))
