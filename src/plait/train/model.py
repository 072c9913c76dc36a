"""`Model`: a backbone and any set of heads, all computed in one pass.

Each head masks first and normalises second, so a masked row stays zero. Heads compute in float32, whatever the
precision of the backbone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.errors import InputError
from plait.train.backbone import Backbone
from plait.train.head_layers import make_layers
from plait.train.model_config import N_ADAPTER_HEADS, FixedConfig, LayerConfig, ModelConfig, TokenAdapterConfig
from plait.train.tensors import Encoded, Tokens


class Model(nn.Module):
    """Tokens to embeddings. `config` says which heads there are; a kind without a head is None."""

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config, self.backbone = config, backbone
        self.sparse: SparseHead | None = None
        self.multi: MultiHead | None = None
        self.mixer: FixedMixer | None = None
        adapter = config.token_adapter
        self.token_adapter = TokenAdapter(backbone.hidden, adapter) if adapter is not None else None
        self.dense_layers: nn.Sequential | None = None
        if config.dense is not None and config.dense.layers:
            n_pooled = backbone.hidden * len(config.dense.pooling.split("+"))
            self.dense_layers = make_layers(n_pooled, config.dense.layers)
        if config.sparse is not None:
            self.sparse = SparseHead(
                backbone.hidden,
                config.sparse.zero_ids,
                n_idf=backbone.n_ids if config.sparse.idf else 0,
                units=config.sparse.hidden,
                idf_gain=config.sparse.idf_gain,
                n_terms=backbone.n_ids if config.sparse.stemming else 0,
            )
        if config.multi is not None:
            self.multi = MultiHead(
                backbone.hidden, config.multi.dim, bias=config.multi.bias, layers=config.multi.layers
            )
            if config.multi.fixed is not None:
                self.mixer = FixedMixer(config.document.length, config.multi.dim, config.multi.fixed)

    def forward(self, tokens: Tokens, *, is_query: bool) -> Encoded:
        tokens = self.pad_for_mixer(tokens, is_query=is_query)
        return self.from_states(self.backbone(tokens), tokens, is_query=is_query)

    def pad_for_mixer(self, tokens: Tokens, *, is_query: bool) -> Tokens:
        """The tokens as the backbone must see them: padded to the full length if the mixer includes padding."""
        if is_query or self.mixer is None or self.mixer.config.zero_pads:
            return tokens
        missing = (0, self.mixer.n_positions - tokens.ids.shape[1])
        return Tokens(F.pad(tokens.ids, missing), F.pad(tokens.mask, missing), F.pad(tokens.rows, missing))

    def from_states(self, states: Tensor, tokens: Tokens, *, is_query: bool) -> Encoded:
        """The embeddings of last hidden states (items, length, hidden)."""
        dense = sparse = sparse_ids = multi = multi_mask = None
        if self.config.dense is not None:
            dense = self._dense(states, tokens.mask)
        if self.token_adapter is not None:
            states = self.token_adapter(states, tokens.mask)
        if self.sparse is not None:
            sparse, sparse_ids = self.sparse(states, tokens.ids, tokens.mask), self.sparse.terms(tokens.ids)
        if self.multi is not None and (self.mixer is None or is_query):
            multi, multi_mask = self.multi(states, tokens.rows), tokens.rows
        elif self.multi is not None and self.mixer is not None:
            multi = self.mixer(states, tokens.mask, self.multi.rows)
            multi_mask = torch.ones(multi.shape[:2], dtype=torch.bool, device=multi.device)
        return Encoded(dense, sparse, sparse_ids, multi, multi_mask)

    def _dense(self, states: Tensor, mask: Tensor) -> Tensor:
        config = self.config.dense
        assert config is not None
        value = torch.cat([pool_states(states, mask, pooling=one) for one in config.pooling.split("+")], dim=-1)
        if self.dense_layers is not None:
            value = self.dense_layers(value).float()
        if config.dim:
            value = value[:, : config.dim]
        return F.normalize(value, dim=-1) if config.normalize else value


def pool(states: Tensor, mask: Tensor, *, pooling: str) -> Tensor:
    """States (items, length, hidden) to unit vectors (items, hidden)."""
    return F.normalize(pool_states(states, mask, pooling=pooling), dim=-1)


def pool_states(states: Tensor, mask: Tensor, *, pooling: str) -> Tensor:
    """States (items, length, hidden) to vectors (items, hidden), by one of the poolings of sentence-transformers: "cls"
    is the state of the first position, "mean" the mean over attended positions. A text without attended positions
    gets zeros, except from "cls"."""
    states = states.float()
    if pooling == "cls":
        return states[:, 0]
    counts = mask.sum(dim=1)
    if pooling == "lasttoken":
        return states[torch.arange(len(states), device=states.device), (counts - 1).clamp(min=0)]
    is_attended = mask.unsqueeze(-1)
    if pooling == "max":
        best = states.masked_fill(~is_attended, -torch.inf).amax(dim=1)
        return torch.where(counts.unsqueeze(-1) > 0, best, torch.zeros_like(best))
    weights = is_attended.to(states.dtype)
    if pooling == "weightedmean":
        weights = weights * weights.cumsum(dim=1)  # later tokens weigh more: 1, 2, 3 ...
    total = weights.sum(dim=1).clamp(min=1)
    if pooling == "mean_sqrt_len_tokens":
        total = total.sqrt()
    return (states * weights).sum(dim=1) / total


class SparseHead(nn.Module):
    """A weight of 0 or more for each token: ReLU of a linear map (M3). Ids in `zero_ids` always weigh 0.

    With `n_idf`, the size of the vocabulary, the IDF of the id is added to the weight, times a learned gain that starts
    at `idf_gain`. The buffer `idf` (n_idf,) is given, not learned: states know it only for words seen in training.
    `units` adds a hidden layer with GELU. With `n_terms`, the size of the vocabulary again, the buffer `term_ids`
    (n_terms,) maps each id to its term, so that words with one stem share a term."""

    zero_ids: Tensor
    idf: Tensor | None
    term_ids: Tensor | None

    def __init__(
        self,
        hidden: int,
        zero_ids: tuple[int, ...],
        *,
        n_idf: int = 0,
        units: int = 0,
        idf_gain: float = 1.0,
        n_terms: int = 0,
    ) -> None:
        super().__init__()
        self.weigh = nn.Linear(hidden, 1)
        self.register_buffer("zero_ids", torch.tensor(sorted(set(zero_ids)), dtype=torch.int64), persistent=False)
        self.register_buffer("idf", torch.zeros(n_idf) if n_idf else None)
        self.register_buffer("term_ids", torch.arange(n_terms) if n_terms else None)
        self.idf_gain = nn.Parameter(torch.full((1,), idf_gain)) if n_idf else None
        self.up = nn.Linear(hidden, units) if units else None
        self.down = nn.Linear(units, 1, bias=False) if units else None
        if self.down is not None:
            nn.init.zeros_(self.down.weight)  # the hidden layer adds nothing at first
        if n_idf:
            # The IDF alone decides at first; what the states add is learned from zero.
            nn.init.zeros_(self.weigh.weight)
            nn.init.zeros_(self.weigh.bias)

    def forward(self, states: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """(items, length) weights; 0 for tokens that are not attended and for `zero_ids`."""
        is_kept = mask & ~torch.isin(ids, self.zero_ids)
        weights: Tensor = self.weigh(states).squeeze(-1).float()
        if self.up is not None and self.down is not None:
            weights = weights + self.down(F.gelu(self.up(states))).squeeze(-1).float()
        if self.idf is not None and self.idf_gain is not None:
            weights = weights + self.idf_gain * self.idf[ids]
        return F.relu(weights) * is_kept

    def terms(self, ids: Tensor) -> Tensor:
        """The term of each token."""
        return ids if self.term_ids is None else self.term_ids[ids]


class MultiHead(nn.Module):
    """A unit vector for each token that gives a row, zeros for the others."""

    def __init__(self, hidden: int, dim: int, *, bias: bool, layers: tuple[LayerConfig, ...] = ()) -> None:
        super().__init__()
        self.dim = dim
        self.project: nn.Module = make_layers(hidden, layers) if layers else nn.Linear(hidden, dim, bias=bias)

    def forward(self, states: Tensor, rows: Tensor) -> Tensor:
        """States (items, length, hidden) and rows (items, length) to (items, length, dim)."""
        return F.normalize(self.rows(states) * rows.unsqueeze(-1), dim=-1)

    def rows(self, states: Tensor) -> Tensor:
        """(..., hidden) to (..., dim), before normalisation."""
        projected: Tensor = self.project(states)
        return projected.float()[..., : self.dim]


def segment_means(n_positions: int, n_vectors: int) -> Tensor:
    """(positions, vectors) weights: vector c is the mean of the c-th of equal segments. Each column sums to one."""
    segment = torch.arange(n_positions) * n_vectors // n_positions
    weights = F.one_hot(segment, n_vectors).float()
    return weights / weights.sum(dim=0)


class FixedMixer(nn.Module):
    """The states of a document to a fixed number of vectors (ConstBERT). It starts as the mean of each segment plus a
    little noise, which trains much faster than random weights.

    "positions" has one weight for each position and vector, and projects the mixture, or mixes projected rows. "flat"
    projects first and has a weight for each pair of (position, dimension) and (vector, dimension): for short documents
    only."""

    def __init__(self, n_positions: int, dim: int, config: FixedConfig) -> None:
        super().__init__()
        self.n_positions, self.dim, self.config = n_positions, dim, config
        means = segment_means(n_positions, config.n_vectors)
        if config.mixer == "flat":
            means = torch.einsum("tc,ij->citj", means, torch.eye(dim)).reshape(config.n_vectors * dim, -1)
        scale = config.noise * config.n_vectors / n_positions
        self.weight = nn.Parameter(means + scale * torch.randn_like(means))
        n_biases = config.n_vectors * (dim if config.mixer == "flat" else 1)
        self.bias = nn.Parameter(torch.zeros(n_biases)) if config.bias else None

    def forward(self, states: Tensor, mask: Tensor, project: Callable[[Tensor], Tensor]) -> Tensor:
        """States (items, length, hidden) to (items, n_vectors, dim) unit vectors."""
        items, length, _ = states.shape
        if length > self.n_positions or (length < self.n_positions and not self.config.zero_pads):
            raise InputError(f"a document has {length} positions, and the mixer was made for {self.n_positions}")
        is_kept = mask.unsqueeze(-1) if self.config.zero_pads else torch.ones_like(mask).unsqueeze(-1)
        if self.config.mixer == "flat":
            flat = (project(states).float() * is_kept).reshape(items, length * self.dim)
            mixed = (flat @ self.weight[:, : length * self.dim].T).reshape(items, -1, self.dim)
        elif self.config.mixes_rows:
            mixed = self._mix(project(states).float() * is_kept)
        else:
            mixed = project(self._mix(states.float() * is_kept)).float()
        if self.bias is not None:
            mixed = mixed + self.bias.view(self.config.n_vectors, -1)
        return F.normalize(mixed, dim=-1)

    def _mix(self, values: Tensor) -> Tensor:
        """(items, length, dim) to (items, n_vectors, dim)."""
        return torch.einsum("blh,lc->bch", values, self.weight[: values.shape[1]])


class AdapterLayer(nn.Module):
    """A small pre-norm transformer layer, used above an encoder: in `TokenAdapter` and in the joint layers of
    cross-encoders."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mixed, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.wide, self.narrow = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        with torch.no_grad():  # keys start equal to queries: at first a token attends to tokens like itself
            self.mixed.weight[dim : 2 * dim] = self.mixed.weight[:dim]
            self.mixed.bias[: 2 * dim] = 0.0

    def forward(self, rows: Tensor, mask: Tensor, at: Tensor | None = None) -> Tensor:
        """(items, length, dim) to the same; mask (items, length) is 1 for attended tokens. With `at` (items, n), only
        the outputs at these positions are computed, (items, n, dim); attention still sees all tokens."""
        dim, normed = rows.shape[2], self.first(rows)
        asking, residual = (normed, rows) if at is None else (gather_rows(normed, at), gather_rows(rows, at))
        queries = self._split_heads(F.linear(asking, self.mixed.weight[:dim], self.mixed.bias[:dim]))
        keys, values = (
            self._split_heads(part)
            for part in F.linear(normed, self.mixed.weight[dim:], self.mixed.bias[dim:]).split(dim, dim=2)
        )
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask[:, None, None, :].bool())
        rows = residual + self.out(attended.transpose(1, 2).reshape(residual.shape))
        fed_forward: Tensor = self.narrow(F.gelu(self.wide(self.second(rows))))
        return rows + fed_forward

    @staticmethod
    def _split_heads(rows: Tensor) -> Tensor:
        """(items, length, dim) to (items, heads, length, dim of a head)."""
        return rows.view(rows.shape[0], rows.shape[1], N_ADAPTER_HEADS, -1).transpose(1, 2)


class TokenAdapter(nn.Module):
    """Small layers between the backbone and the sparse and multi heads. The dense head does not see them, so a frozen
    backbone keeps its dense vectors while the other heads learn. At first the adapter adds nothing to the states."""

    def __init__(self, hidden: int, config: TokenAdapterConfig) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(hidden), nn.Linear(hidden, config.dim)
        self.layers = nn.ModuleList(AdapterLayer(config.dim) for _ in range(config.n_layers))
        self.up = nn.Linear(config.dim, hidden, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States (items, length, hidden) to the same; values at padding are undefined."""
        rows: Tensor = self.down(self.norm(states))
        for layer in self.layers:
            rows = layer(rows, mask)
        added: Tensor = self.up(rows)
        return states + added


def gather_rows(rows: Tensor, at: Tensor) -> Tensor:
    """(items, n, dim): the rows of (items, length, dim) at positions (items, n)."""
    return rows.gather(1, at.unsqueeze(2).expand(-1, -1, rows.shape[2]))
