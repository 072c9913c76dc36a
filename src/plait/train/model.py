"""`Model`: a backbone and any set of heads, all in one pass."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.errors import InputError
from plait.train.backbone import Backbone
from plait.train.model_config import N_SMALL_HEADS, FixedConfig, LateConfig, ModelConfig
from plait.train.tensors import Encoded, Tokens


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


class Model(nn.Module):
    """Tokens to strands. `config` says which; a strand without a head is None."""

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config, self.backbone = config, backbone
        self.sparse: SparseHead | None = None
        self.multi: MultiHead | None = None
        self.mixer: FixedMixer | None = None
        self.late = LateLayers(backbone.hidden, config.late) if config.late is not None else None
        if config.sparse is not None:
            n_ids = backbone.n_ids if config.sparse.prior else 0
            self.sparse = SparseHead(
                backbone.hidden,
                config.sparse.zero_ids,
                n_ids=n_ids,
                units=config.sparse.hidden,
                gain=config.sparse.gain,
                n_forms=backbone.n_ids if config.sparse.forms else 0,
            )
        if config.multi is not None:
            self.multi = MultiHead(backbone.hidden, config.multi.dim, bias=config.multi.bias)
            if config.multi.fixed is not None:
                self.mixer = FixedMixer(config.document.length, config.multi.dim, config.multi.fixed)

    def forward(self, tokens: Tokens, *, is_query: bool) -> Encoded:
        tokens = self.framed(tokens, is_query=is_query)
        return self.from_states(self.backbone(tokens), tokens, is_query=is_query)

    def framed(self, tokens: Tokens, *, is_query: bool) -> Tokens:
        """The tokens as the backbone must see them: padded to the full length where the padding itself is mixed."""
        if is_query or self.mixer is None or self.mixer.config.zero_pads:
            return tokens
        missing = (0, self.mixer.n_positions - tokens.ids.shape[1])
        return Tokens(F.pad(tokens.ids, missing), F.pad(tokens.mask, missing), F.pad(tokens.rows, missing))

    def from_states(self, states: Tensor, tokens: Tokens, *, is_query: bool) -> Encoded:
        """The strands of last hidden states (items, length, hidden), which `Backbone.finish` gives as well."""
        dense = sparse = sparse_ids = multi = multi_mask = None
        if self.config.dense is not None:
            dense = pool(states, tokens.mask, pooling=self.config.dense.pooling)
        if self.late is not None:
            states = self.late(states, tokens.mask)
        if self.sparse is not None:
            sparse, sparse_ids = self.sparse(states, tokens.ids, tokens.mask), self.sparse.terms(tokens.ids)
        if self.multi is not None and (self.mixer is None or is_query):
            multi, multi_mask = self.multi(states, tokens.rows), tokens.rows
        elif self.multi is not None and self.mixer is not None:
            multi = self.mixer(states, tokens.mask, self.multi.project)
            multi_mask = torch.ones(multi.shape[:2], dtype=torch.bool, device=multi.device)
        return Encoded(dense=dense, sparse=sparse, sparse_ids=sparse_ids, multi=multi, multi_mask=multi_mask)
