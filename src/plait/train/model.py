"""`Model`: a backbone and any set of heads, all in one pass."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.train.backbone import Backbone
from plait.train.encoded import Encoded, Tokens
from plait.train.heads import FixedMixer, MultiHead, SparseHead, pool
from plait.train.model_config import ModelConfig
from plait.train.token_adapter import LateLayers


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
