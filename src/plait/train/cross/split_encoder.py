"""The lower layers of a cross-encoder, where each text is read by itself.

They are an encoder's own, left as they are: a model that begins so knows at once what texts are about, and learns only
how to set them side by side. In training their states are kept, for a text comes back with many others. Where all
layers read apart, a graph of the encoder may compute them instead, several times as fast.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError
from plait.train.backbone import Backbone, family_of
from plait.train.frozen_layers import Source
from plait.train.tensors import Tokens

KEPT_BYTES = 3 << 30  # of states of texts, in half precision
TEXTS_AT_ONCE = 16  # of like length: the graph's time is that of the longest


class Apart:
    """The first `n` layers of a BERT, frozen, with attention inside each text of a pair alone. In those above, `bridge`
    is added to attention from one text to the other."""

    def __init__(
        self,
        backbone: Backbone,
        n: int,
        *,
        bridge: float = 0.0,
        graph: Source | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        kind = backbone.encoder.config.model_type
        if kind != "bert":
            raise ConfigError(f"apart is {n}, and the backbone is of type {kind!r}; only bert can read texts apart")
        layers = family_of(backbone.encoder).layers(backbone.encoder)
        if n > len(layers):
            raise ConfigError(f"apart is {n}, and the backbone has {len(layers)} layers; take as many or fewer")
        if bridge and n == len(layers):
            raise ConfigError(f"bridge is {bridge}, and all {n} layers read apart; lower apart, or leave bridge out")
        if graph is not None and n < len(layers):
            raise ConfigError(
                f"a graph gives last states, and apart is {n} of {len(layers)} layers; make it all of them"
            )
        self._encoder, self._n, self._layers, self._graph = backbone.encoder, n, layers, graph
        self._bridge = bridge
        self._kept, self._bytes, self._room = OrderedDict[bytes, Tensor](), 0, kept_bytes
        for part in (backbone.encoder.embeddings, *layers[:n]):
            _freeze(part)

    def states(self, ids: Tensor, mask: Tensor, sides: Tensor) -> Tensor:
        """(pairs, length, hidden) after the lower layers, of a padded batch of pairs."""
        same = (sides.unsqueeze(1) == sides.unsqueeze(2)) & mask.bool().unsqueeze(1)
        n_query = (mask * (1 - sides)).sum(dim=1, keepdim=True)
        # Each text is numbered from its own beginning, as the encoder read it before.
        places = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0) - sides * n_query
        embedded: Tensor = self._encoder.embeddings(input_ids=ids, position_ids=places)
        return self._run(embedded, _shown(same.unsqueeze(1), embedded.dtype), 0, self._n)

    def kept_states(self, ids: Tensor, mask: Tensor, sides: Tensor) -> Tensor:
        """The same, from what is kept; no gradient goes below."""
        lengths, n_query = mask.sum(dim=1).tolist(), (mask * (1 - sides)).sum(dim=1).tolist()
        rows = ids.cpu()
        texts = [
            part
            for row, length, n in zip(rows, lengths, n_query, strict=True)
            for part in (row[:n], row[n:length])
        ]  # fmt: skip
        found = self._look_up(texts, ids.device)
        filled = torch.zeros(*ids.shape, next(iter(found.values())).shape[1], device=ids.device)
        for number, (length, n) in enumerate(zip(lengths, n_query, strict=True)):
            query, document = (_key(text) for text in texts[2 * number : 2 * number + 2])
            filled[number, :n], filled[number, n:length] = found[query], found[document]
        return filled

    def joint(self, states: Tensor, mask: Tensor, sides: Tensor) -> Tensor:
        """The layers above, where every token sees both texts."""
        shown = _shown(mask.bool()[:, None, None, :], states.dtype)
        if self._bridge:
            across = (sides.unsqueeze(1) != sides.unsqueeze(2)).unsqueeze(1)
            shown = shown + self._bridge * across.to(states.dtype)
        return self._run(states, shown, self._n, len(self._layers))

    def _look_up(self, texts: list[Tensor], device: torch.device) -> dict[bytes, Tensor]:
        wanted = {_key(text): text for text in texts}
        missing = sorted((text for key, text in wanted.items() if key not in self._kept), key=len)
        found = {key: self._kept[key] for key in wanted if key in self._kept}
        for start in range(0, len(missing), TEXTS_AT_ONCE):
            block = missing[start : start + TEXTS_AT_ONCE]
            with torch.no_grad():
                ids = nn.utils.rnn.pad_sequence(block, batch_first=True).to(device)
                lengths = torch.tensor([len(text) for text in block], device=device)
                mask = torch.arange(ids.shape[1], device=device).unsqueeze(0) < lengths.unsqueeze(1)
                if self._graph is None:
                    states = self.states(ids, mask.long(), torch.zeros_like(ids))
                else:
                    states = self._graph.states(Tokens(ids, mask, mask)).to(device)
            for text, own in zip(block, states, strict=True):
                found[_key(text)] = own[: len(text)].half().clone()
        self._keep({key: states for key, states in found.items() if key not in self._kept})
        return {key: states.float() for key, states in found.items()}

    def _keep(self, fresh: dict[bytes, Tensor]) -> None:
        for key, states in fresh.items():
            self._kept[key] = states
            self._bytes += states.nbytes
        while self._bytes > self._room and self._kept:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes

    def _run(self, states: Tensor, shown: Tensor, start: int, stop: int) -> Tensor:
        for layer in self._layers[start:stop]:
            out: Any = layer(states, shown)
            states = out[0] if isinstance(out, tuple) else out
        return states


def _shown(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to attention: nothing where it is seen."""
    # Padding is numbered as the query; rows of it that see nothing would be NaN, so a number stands for -inf. Half of
    # the smallest, for a bridge is added to it.
    shown = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return shown.masked_fill(~seen, torch.finfo(dtype).min / 2)


def _key(text: Tensor) -> bytes:
    return text.numpy().tobytes()


def _freeze(part: nn.Module) -> None:
    part.requires_grad_(False)
    for module in part.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # what is kept must be the same each time
