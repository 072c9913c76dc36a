"""`Tower`: a small trained top over the states of a frozen encoder: one layer, then the heads of `plait.train`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.embeddings import MultiVectors
from plait.encode.batches import by_length
from plait.train.model import FixedMixer, SparseHead, pool
from plait.train.model_config import FixedConfig
from plait.train.scores import dense_scores, maxsim_scores, sparse_scores
from plait.train.tensors import Encoded, Tokens
from plait_reproduce.frozen_encoder import States

WIDTH = 64
FEED = 64
N_HEADS = 4
MAX_BATCH_TOKENS = 8192  # per batch outside training
MAX_BATCH_TEXTS = 100


def padded(states: States, items: Sequence[int]) -> tuple[Tensor, Tokens]:
    """Texts as a padded batch: states (items, length, hidden) and their tokens."""
    lengths = [int(states.lengths[item]) for item in items]
    values = np.zeros((len(lengths), max(lengths), states.values.shape[1]), np.float32)
    ids = np.zeros(values.shape[:2], np.int64)
    mask, rows = np.zeros(values.shape[:2], np.bool_), np.zeros(values.shape[:2], np.bool_)
    for position, (item, length) in enumerate(zip(items, lengths, strict=True)):
        text_rows = states.of(item)
        values[position, :length], ids[position, :length] = states.values[text_rows], states.ids[text_rows]
        mask[position, :length], rows[position, :length] = states.seen[text_rows], states.kept[text_rows]
    return torch.from_numpy(values), Tokens(torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(rows))


class Tower(nn.Module):
    """From states (items, length, hidden) to embeddings. A linear map, one transformer layer that starts as the
    identity, and a unit row for each token. `heads` adds a dense vector (of the first token) and a sparse one; `fixed`
    mixes the rows of documents, of at most `n_positions` tokens, into that many."""

    def __init__(self, hidden: int, *, heads: bool = False, fixed: int = 0, n_positions: int = 64) -> None:
        super().__init__()
        self.enter = nn.Linear(hidden, WIDTH)
        # The map starts orthogonal, which preserves distances: training starts from a retriever, not from noise.
        nn.init.orthogonal_(self.enter.weight)
        nn.init.zeros_(self.enter.bias)
        self.attend = nn.MultiheadAttention(WIDTH, N_HEADS, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(WIDTH, FEED), nn.GELU(), nn.Linear(FEED, WIDTH))
        self.before_attention, self.before_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        last = self.feed[2]
        assert isinstance(last, nn.Linear)
        for silent in (self.attend.out_proj, last):
            nn.init.zeros_(silent.weight)
            nn.init.zeros_(silent.bias)
        self.mixer = FixedMixer(n_positions, WIDTH, FixedConfig(n_vectors=fixed)) if fixed else None
        self.sparse = SparseHead(WIDTH, ()) if heads else None
        self.dense = heads

    def forward(self, states: Tensor, tokens: Tokens, *, is_query: bool) -> Encoded:
        seen = self.enter(states)
        looked = self.before_attention(seen)
        attended, _ = self.attend(looked, looked, looked, key_padding_mask=~tokens.mask, need_weights=False)
        seen = seen + attended
        seen = seen + self.feed(self.before_feed(seen))
        dense = pool(seen, tokens.mask, pooling="cls") if self.dense else None
        weights = self.sparse(seen, tokens.ids, tokens.mask & tokens.rows) if self.sparse is not None else None
        if self.mixer is not None and not is_query:
            multi = self.mixer(seen, tokens.mask, nn.Identity())
            mask = torch.ones(multi.shape[:2], dtype=torch.bool)
        else:
            multi, mask = F.normalize(seen * tokens.rows.unsqueeze(-1), dim=-1), tokens.rows
        return Encoded(dense=dense, sparse=weights, sparse_ids=None if weights is None else tokens.ids, multi=multi,
                       multi_mask=mask)  # fmt: skip

    def encode(self, states: States, items: Sequence[int], *, is_query: bool) -> Encoded:
        encoded_texts: Encoded = self(*padded(states, items), is_query=is_query)
        return encoded_texts

    @torch.no_grad()
    def rows(self, states: States, *, is_query: bool) -> MultiVectors:
        """The multi vectors of all texts."""
        parts: list[NDArray[np.float32]] = [np.zeros((0, WIDTH), np.float32)] * len(states)
        for items in by_length(states.lengths.tolist(), n_tokens=MAX_BATCH_TOKENS):
            encoded = self.encode(states, items, is_query=is_query)
            assert encoded.multi is not None
            assert encoded.multi_mask is not None
            for position, item in enumerate(items):
                parts[item] = encoded.multi[position][encoded.multi_mask[position]].numpy()
        return MultiVectors.from_items(parts)


@torch.no_grad()
def kind_scores(tower: Tower, queries: States, documents: States) -> dict[str, NDArray[np.float32]]:
    """(queries, documents) scores of each kind."""
    encoded_queries = tower.encode(queries, range(len(queries)), is_query=True)
    parts: dict[str, list[NDArray[np.float32]]] = {"dense": [], "sparse": [], "multi": []}
    for start in range(0, len(documents), MAX_BATCH_TEXTS):
        part = tower.encode(documents, range(start, min(start + MAX_BATCH_TEXTS, len(documents))), is_query=False)
        parts["dense"].append(dense_scores(encoded_queries, part).numpy())
        parts["sparse"].append(sparse_scores(encoded_queries, part).numpy())
        parts["multi"].append(maxsim_scores(encoded_queries, part, reduce="mean").numpy())
    return {name: np.concatenate(rankings, axis=1) for name, rankings in parts.items()}
