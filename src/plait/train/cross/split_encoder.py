"""`SplitEncoder`: the lower layers of a cross-encoder, in which the two texts of a pair do not see each other.

They are the layers of an encoder, frozen: the model starts with what the encoder knows about each text, and learns only
to compare them. In training the states of a text are cached, because it comes back in many pairs. If all layers are
split, an ONNX graph of the encoder may compute the states instead, several times as fast.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError
from plait.train.backbone import Backbone, family_of
from plait.train.frozen_layers import StateSource
from plait.train.tensors import Tokens

CACHE_BYTES = 3 << 30  # of states, in half precision
BATCH_TEXTS = 16  # of similar length: the time of a pass is that of the longest


class SplitEncoder:
    """The first `n` layers of a BERT, frozen, with attention inside each text only. In the layers above, `bias` is
    added to the attention scores between the two texts."""

    def __init__(
        self,
        backbone: Backbone,
        n: int,
        *,
        bias: float = 0.0,
        graph: StateSource | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        model_type = backbone.encoder.config.model_type
        if model_type != "bert":
            raise ConfigError(f"split_layers is {n}, and the backbone is a {model_type!r}; only a bert can be split")
        layers = family_of(backbone.encoder).layers(backbone.encoder)
        if n > len(layers):
            raise ConfigError(f"split_layers is {n}, and the backbone has {len(layers)} layers; use that many or fewer")
        if bias and n == len(layers):
            raise ConfigError(
                f"cross_attention_bias is {bias}, and all {n} layers are split; lower split_layers, or leave the bias "
                f"out"
            )
        if graph is not None and n < len(layers):
            raise ConfigError(
                f"a graph gives last hidden states, and split_layers is {n} of {len(layers)} layers; split all of them"
            )
        self._encoder, self._n, self._layers, self._graph = backbone.encoder, n, layers, graph
        self._bias = bias
        self._cache, self._n_bytes, self._max_bytes = OrderedDict[bytes, Tensor](), 0, cache_bytes
        for module in (backbone.encoder.embeddings, *layers[:n]):
            _freeze(module)

    def states(self, ids: Tensor, mask: Tensor, type_ids: Tensor) -> Tensor:
        """(pairs, length, hidden) after the split layers, for a padded batch of pairs."""
        same_text = (type_ids.unsqueeze(1) == type_ids.unsqueeze(2)) & mask.bool().unsqueeze(1)
        n_query = (mask * (1 - type_ids)).sum(dim=1, keepdim=True)
        # Positions start at 0 in each text, as when the encoder was trained.
        positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0) - type_ids * n_query
        embedded: Tensor = self._encoder.embeddings(input_ids=ids, position_ids=positions)
        return self._run(embedded, _attention_bias(same_text.unsqueeze(1), embedded.dtype), 0, self._n)

    def cached_states(self, ids: Tensor, mask: Tensor, type_ids: Tensor) -> Tensor:
        """The same, from the cache; without gradient."""
        lengths, n_query = mask.sum(dim=1).tolist(), (mask * (1 - type_ids)).sum(dim=1).tolist()
        rows = ids.cpu()
        texts = [
            part
            for row, length, n in zip(rows, lengths, n_query, strict=True)
            for part in (row[:n], row[n:length])
        ]  # fmt: skip
        by_key = self._look_up(texts, ids.device)
        filled = torch.zeros(*ids.shape, next(iter(by_key.values())).shape[1], device=ids.device)
        for number, (length, n) in enumerate(zip(lengths, n_query, strict=True)):
            query, document = (_key(text) for text in texts[2 * number : 2 * number + 2])
            filled[number, :n], filled[number, n:length] = by_key[query], by_key[document]
        return filled

    def upper_states(self, states: Tensor, mask: Tensor, type_ids: Tensor) -> Tensor:
        """The states after the upper layers, in which every token sees both texts."""
        bias = _attention_bias(mask.bool()[:, None, None, :], states.dtype)
        if self._bias:
            between = (type_ids.unsqueeze(1) != type_ids.unsqueeze(2)).unsqueeze(1)
            bias = bias + self._bias * between.to(states.dtype)
        return self._run(states, bias, self._n, len(self._layers))

    def _look_up(self, texts: list[Tensor], device: torch.device) -> dict[bytes, Tensor]:
        wanted = {_key(text): text for text in texts}
        missing = sorted((text for key, text in wanted.items() if key not in self._cache), key=len)
        by_key = {key: self._cache[key] for key in wanted if key in self._cache}
        for start in range(0, len(missing), BATCH_TEXTS):
            block = missing[start : start + BATCH_TEXTS]
            with torch.no_grad():
                ids = nn.utils.rnn.pad_sequence(block, batch_first=True).to(device)
                lengths = torch.tensor([len(text) for text in block], device=device)
                mask = torch.arange(ids.shape[1], device=device).unsqueeze(0) < lengths.unsqueeze(1)
                if self._graph is None:
                    states = self.states(ids, mask.long(), torch.zeros_like(ids))
                else:
                    states = self._graph.states(Tokens(ids, mask, mask)).to(device)
            for text, of_text in zip(block, states, strict=True):
                by_key[_key(text)] = of_text[: len(text)].half().clone()
        self._store({key: states for key, states in by_key.items() if key not in self._cache})
        return {key: states.float() for key, states in by_key.items()}

    def _store(self, new: dict[bytes, Tensor]) -> None:
        for key, states in new.items():
            self._cache[key] = states
            self._n_bytes += states.nbytes
        while self._n_bytes > self._max_bytes and self._cache:
            self._n_bytes -= self._cache.popitem(last=False)[1].nbytes

    def _run(self, states: Tensor, bias: Tensor, start: int, stop: int) -> Tensor:
        for layer in self._layers[start:stop]:
            out: Any = layer(states, bias)
            states = out[0] if isinstance(out, tuple) else out
        return states


def _attention_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed, a very low number elsewhere."""
    # Padding has the query's type id. A row of padding may see nothing, and would be NaN with -inf. Half of the lowest
    # number, because the bias between the texts is added to it.
    bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return bias.masked_fill(~visible, torch.finfo(dtype).min / 2)


def _key(text: Tensor) -> bytes:
    return text.numpy().tobytes()


def _freeze(module: nn.Module) -> None:
    module.requires_grad_(False)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0  # cached states must be the same each time
