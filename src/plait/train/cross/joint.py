"""Small layers above an encoder, where every token sees both texts of a pair.

They are narrower than the encoder, and begin as nothing: what they add to the states is zero until they have learned.
So a model with them starts as good as the encoder below, and costs hardly more.
"""

from __future__ import annotations

from torch import Tensor, nn

from plait.train.layer import Layer, taken


class JointBlock(nn.Module):
    """States of two texts, read apart, to states of the pair."""

    def __init__(self, hidden: int, dim: int, n_layers: int = 1) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(hidden), nn.Linear(hidden, dim)
        self.side = nn.Embedding(2, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(n_layers))
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
