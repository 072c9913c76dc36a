"""Late layers: small ones above a backbone, for the strands of its tokens alone. The dense strand does not see them, so
a backbone that is good at it, and frozen, stays so while sparse and multi learn."""

from __future__ import annotations

from torch import Tensor, nn

from plait.train.layer import Layer
from plait.train.model_config import LateConfig


class LateLayers(nn.Module):
    """What they add to the states is nothing until they have learned."""

    def __init__(self, hidden: int, config: LateConfig) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(hidden), nn.Linear(hidden, config.dim)
        self.layers = nn.ModuleList(Layer(config.dim) for _ in range(config.n_layers))
        self.up = nn.Linear(config.dim, hidden, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States (items, length, hidden) to the same; what padding has is of no meaning."""
        rows: Tensor = self.down(self.norm(states))
        for layer in self.layers:
            rows = layer(rows, mask)
        added: Tensor = self.up(rows)
        return states + added
