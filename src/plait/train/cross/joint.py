"""A small layer above an encoder, where every token sees both texts of a pair.

It is narrower than the encoder, and begins as nothing: what it adds to the states is zero until it has learned. So a
model with it starts as good as the encoder below, and costs hardly more.
"""

from __future__ import annotations

import math

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

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        """(pairs, length, dim) to the same; mask (pairs, length) is 1 where a token is."""
        n_pairs, length, dim = rows.shape
        split = self.mixed(self.first(rows)).view(n_pairs, length, 3, N_HEADS, dim // N_HEADS)
        asked, held, carried = split.permute(2, 0, 3, 1, 4)
        seen = asked @ held.transpose(2, 3) / math.sqrt(dim // N_HEADS)
        seen = seen.masked_fill(mask[:, None, None, :] == 0, torch.finfo(rows.dtype).min).softmax(dim=3)
        rows = rows + self.out((seen @ carried).transpose(1, 2).reshape(n_pairs, length, dim))
        added: Tensor = self.narrow(F.gelu(self.wide(self.second(rows))))
        return rows + added


class JointBlock(nn.Module):
    """States of two texts, read apart, to states of the pair."""

    def __init__(self, hidden: int, dim: int) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(hidden), nn.Linear(hidden, dim)
        self.side = nn.Embedding(2, dim)
        self.layer, self.up = JointLayer(dim), nn.Linear(dim, hidden, bias=False)
        nn.init.normal_(self.side.weight, std=0.1)
        nn.init.zeros_(self.up.weight)

    def forward(self, states: Tensor, mask: Tensor, sides: Tensor) -> Tensor:
        """(pairs, length, hidden) to the same."""
        rows = self.layer(self.down(self.norm(states)) + self.side(sides), mask)
        added: Tensor = self.up(rows)
        return states + added
