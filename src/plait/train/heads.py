"""From last hidden states to strands. Each head masks first and normalises second, so that a masked row stays zero;
every head works in float32, whatever the backbone ran in."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.errors import InputError
from plait.train.model_config import FixedConfig


def pool(states: Tensor, mask: Tensor, *, pooling: str) -> Tensor:
    """States (items, length, hidden) to vectors (items, hidden) of length one: the first position for "cls", the mean
    over attended positions for "mean". A text with no attended position gets zeros."""
    states = states.float()
    if pooling == "cls":
        return F.normalize(states[:, 0], dim=-1)
    weights = mask.unsqueeze(-1).to(states.dtype)
    return F.normalize((states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1), dim=-1)


class SparseHead(nn.Module):
    """A weight of 0 or more for each token: ReLU of a linear map (M3). Some ids never weigh anything.

    With a vocabulary (`n_ids`), the map also takes in how rare an id is, `rarity` (n_ids,), which is given and not
    learned: a state tells it only for words that training saw. It counts `gain` times at first, on both sides.
    `units` more go through a GELU and are added. `n_forms`, the size of the vocabulary again, is for words whose forms
    are one term: the buffer `forms` (n_forms,) says which, and is given too."""

    zero_ids: Tensor
    rarity: Tensor | None
    forms: Tensor | None

    def __init__(
        self,
        hidden: int,
        zero_ids: tuple[int, ...],
        *,
        n_ids: int = 0,
        units: int = 0,
        gain: float = 1.0,
        n_forms: int = 0,
    ) -> None:
        super().__init__()
        self.weigh = nn.Linear(hidden, 1)
        self.register_buffer("zero_ids", torch.tensor(sorted(set(zero_ids)), dtype=torch.int64), persistent=False)
        self.register_buffer("rarity", torch.zeros(n_ids) if n_ids else None)
        self.register_buffer("forms", torch.arange(n_forms) if n_forms else None)
        self.gain = nn.Parameter(torch.full((1,), gain)) if n_ids else None
        self.up = nn.Linear(hidden, units) if units else None
        self.down = nn.Linear(units, 1, bias=False) if units else None
        if self.down is not None:
            nn.init.zeros_(self.down.weight)  # what is added is learned from nothing
        if n_ids:
            # Rarity leads at first; what a state adds to it is learned from nothing.
            nn.init.zeros_(self.weigh.weight)
            nn.init.zeros_(self.weigh.bias)

    def forward(self, states: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """(items, length) weights; 0 where the token is not attended or its id weighs nothing."""
        kept = mask & ~torch.isin(ids, self.zero_ids)
        weights: Tensor = self.weigh(states).squeeze(-1).float()
        if self.up is not None and self.down is not None:
            weights = weights + self.down(F.gelu(self.up(states))).squeeze(-1).float()
        if self.rarity is not None and self.gain is not None:
            weights = weights + self.gain * self.rarity[ids]
        return F.relu(weights) * kept

    def terms(self, ids: Tensor) -> Tensor:
        """The term that each token counts as."""
        return ids if self.forms is None else self.forms[ids]


class MultiHead(nn.Module):
    """A vector of length one for each token that keeps its row, zeros elsewhere."""

    def __init__(self, hidden: int, dim: int, *, bias: bool) -> None:
        super().__init__()
        self.project = nn.Linear(hidden, dim, bias=bias)

    def forward(self, states: Tensor, rows: Tensor) -> Tensor:
        """States (items, length, hidden) and rows (items, length) to (items, length, dim)."""
        return F.normalize(self.project(states).float() * rows.unsqueeze(-1), dim=-1)


def segment_means(n_positions: int, n_vectors: int) -> Tensor:
    """(positions, vectors): vector c is the mean of the c-th of equal segments. Every column adds up to one."""
    segment = torch.arange(n_positions) * n_vectors // n_positions
    weights = F.one_hot(segment, n_vectors).float()
    return weights / weights.sum(dim=0)


class FixedMixer(nn.Module):
    """The states of a document to a fixed number of vectors (ConstBERT). It starts as the mean of each segment and a
    little noise, which trains much faster than weights at random.

    "positions" mixes states with one weight for each position and vector, and projects what is mixed; "flat" projects
    first and has a weight for each pair of (position, dimension) and (vector, dimension): only for short documents."""

    def __init__(self, n_positions: int, dim: int, config: FixedConfig) -> None:
        super().__init__()
        self.n_positions, self.dim, self.config = n_positions, dim, config
        means = segment_means(n_positions, config.n_vectors)
        if config.mixer == "flat":
            means = torch.einsum("tc,ij->citj", means, torch.eye(dim)).reshape(config.n_vectors * dim, -1)
        scale = config.noise * config.n_vectors / n_positions
        self.weight = nn.Parameter(means + scale * torch.randn_like(means))

    def forward(self, states: Tensor, mask: Tensor, project: nn.Module) -> Tensor:
        """States (items, length, hidden) to (items, n_vectors, dim), each of length one."""
        items, length, _ = states.shape
        if length > self.n_positions or (length < self.n_positions and not self.config.zero_pads):
            raise InputError(f"a document has {length} positions, and the mixer was made for {self.n_positions}")
        kept = mask.unsqueeze(-1) if self.config.zero_pads else torch.ones_like(mask).unsqueeze(-1)
        if self.config.mixer == "flat":
            flat = (project(states).float() * kept).reshape(items, length * self.dim)
            mixed = (flat @ self.weight[:, : length * self.dim].T).reshape(items, -1, self.dim)
        else:
            mixed = project(torch.einsum("blh,lc->bch", states.float() * kept, self.weight[:length])).float()
        return F.normalize(mixed, dim=-1)
