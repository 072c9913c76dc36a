"""The layers of each family of encoders, one by one, so that a pass can stop after some and go on later. The whole
pass is the library's own (backbone.py); a test holds the two equal for each family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ModelError

# What a layer needs beside the states: its number and the states in, the states out.
Step = Callable[[int, Tensor], Any]


@dataclass(frozen=True, slots=True)
class Family:
    """How encoders of one kind are taken apart."""

    layers: Callable[[Any], nn.ModuleList]
    embed: Callable[[Any, Tensor], Tensor]  # ids (items, length) -> states
    step: Callable[[Any, Tensor, Tensor], Step]  # states and mask -> what runs a layer
    close: Callable[[Any, Tensor], Tensor]  # states after the last layer -> last hidden states
    positions: Callable[[Any, int], Tensor] | None  # the table of absolute positions: length -> (length, hidden)


def family_of(encoder: Any) -> Family:
    """The family of a transformers model; ModelError if its layers cannot be run one by one."""
    kind = encoder.config.model_type
    if kind not in FAMILIES:
        raise ModelError(
            f"the layers of a {kind!r} encoder cannot be split, frozen or cached; "
            f"plait can do so for {', '.join(sorted(FAMILIES))}"
        )
    return FAMILIES[kind]


def run_layers(encoder: Any, states: Tensor, mask: Tensor, *, start: int, stop: int) -> Tensor:
    """States (items, length, hidden) before layer `start` to states before layer `stop`."""
    family = family_of(encoder)
    step = family.step(encoder, states, mask)
    for number in range(start, stop):
        out = step(number, states)
        # Some families give a tuple of the states and what else they computed.
        states = out[0] if isinstance(out, tuple) else out
    return states


def _mask(encoder: Any, states: Tensor, mask: Tensor) -> Any:
    from transformers.masking_utils import create_bidirectional_mask

    return create_bidirectional_mask(config=encoder.config, inputs_embeds=states, attention_mask=mask.long())


def _same(_encoder: Any, states: Tensor) -> Tensor:
    return states


def _bert_step(encoder: Any, states: Tensor, mask: Tensor) -> Step:
    shown, layers = _mask(encoder, states, mask), encoder.encoder.layer
    return lambda number, states: layers[number](states, shown)


def _mpnet_step(encoder: Any, states: Tensor, mask: Tensor) -> Step:
    shown, layers = _mask(encoder, states, mask), encoder.encoder.layer
    bias = encoder.encoder.compute_position_bias(states)
    return lambda number, states: layers[number](states, shown, bias)


def _t5_step(encoder: Any, states: Tensor, mask: Tensor) -> Step:
    length, blocks = states.shape[1], encoder.encoder.block
    # Only the first block has the table of relative positions; every other block is given what it computes. The mask
    # goes in with it: older releases of transformers look at no mask where there is a bias already.
    bias = blocks[0].layer[0].SelfAttention.compute_bias(length, length, device=states.device)
    shown = bias.masked_fill(~mask[:, None, None, :], torch.finfo(states.dtype).min)
    return lambda number, states: blocks[number](states, None, shown)


def _t5_close(encoder: Any, states: Tensor) -> Tensor:
    closed: Tensor = encoder.encoder.dropout(encoder.encoder.final_layer_norm(states))
    return closed


def _modernbert_step(encoder: Any, states: Tensor, mask: Tensor) -> Step:
    from transformers.masking_utils import create_bidirectional_sliding_window_mask

    shown = {
        "full_attention": _mask(encoder, states, mask),
        "sliding_attention": create_bidirectional_sliding_window_mask(
            config=encoder.config, inputs_embeds=states, attention_mask=mask.long()
        ),
    }
    places = torch.arange(states.shape[1], device=states.device).unsqueeze(0)
    turned = {kind: encoder.rotary_emb(states, places, kind) for kind in set(encoder.config.layer_types)}

    def step(number: int, states: Tensor) -> Any:
        layer = encoder.layers[number]
        kind = layer.attention_type
        return layer(states, attention_mask=shown[kind], position_embeddings=turned[kind])

    return step


def _table(encoder: Any, length: int, first: int) -> Tensor:
    table: Tensor = encoder.embeddings.position_embeddings.weight
    if first + length > len(table):
        raise ModelError(f"the encoder has {len(table) - first} positions, and a text has {length}; cut it shorter")
    return table[first : first + length]


def _bert(first_position: Callable[[Any], int]) -> Family:
    return Family(
        layers=lambda encoder: encoder.encoder.layer,
        embed=lambda encoder, ids: encoder.embeddings(input_ids=ids),
        step=_bert_step,
        close=_same,
        positions=lambda encoder, length: _table(encoder, length, first_position(encoder)),
    )


def _after_padding(encoder: Any) -> int:
    """RoBERTa and MPNet number positions from the padding id on."""
    return int(encoder.embeddings.padding_idx) + 1


_BERT = _bert(lambda _encoder: 0)
_ROBERTA = _bert(_after_padding)
_MPNET = Family(layers=_BERT.layers, embed=_BERT.embed, step=_mpnet_step, close=_same, positions=_ROBERTA.positions)
_T5 = Family(
    layers=lambda encoder: encoder.encoder.block,
    embed=lambda encoder, ids: encoder.encoder.dropout(encoder.encoder.embed_tokens(ids)),
    step=_t5_step,
    close=_t5_close,
    positions=None,
)
_MODERNBERT = Family(
    layers=lambda encoder: encoder.layers,
    embed=lambda encoder, ids: encoder.embeddings(input_ids=ids),
    step=_modernbert_step,
    close=lambda encoder, states: encoder.final_norm(states),
    positions=None,
)
FAMILIES: dict[str, Family] = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "mpnet": _MPNET,
    "t5": _T5,
    "mt5": _T5,
    "modernbert": _MODERNBERT,
}
