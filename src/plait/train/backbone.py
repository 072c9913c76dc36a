"""`Backbone`: an encoder of the transformers library, as a function from tokens to last hidden states, with its layers
divided where training wants it: a lower part whose states can be kept, and an upper part that learns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, ModelError
from plait.train.tensors import Tokens

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


# These have a pooler that plait does not use; leaving it out keeps it from being made at random and saved.
_WITH_POOLER = ("bert", "roberta", "xlm-roberta", "mpnet")


class Backbone(nn.Module):
    """Tokens (items, length) to last hidden states (items, length, hidden). `encoder` is a transformers model."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder: Any = encoder

    @property
    def hidden(self) -> int:
        """The size of a state."""
        return int(self.encoder.config.hidden_size)

    @property
    def n_ids(self) -> int:
        """How many ids there is a vector for."""
        return int(self.encoder.get_input_embeddings().weight.shape[0])

    @property
    def n_layers(self) -> int:
        return len(family_of(self.encoder).layers(self.encoder))

    def forward(self, tokens: Tokens) -> Tensor:
        states: Tensor = self.encoder(input_ids=tokens.ids, attention_mask=tokens.mask.long()).last_hidden_state
        return states

    def states(self, tokens: Tokens, *, upto: int) -> Tensor:
        """The states after the first `upto` layers, without gradient and without dropout: they are made to be kept,
        and must be the same each time. 0 gives the embeddings."""
        self._check(upto, "upto")
        training = self.encoder.training
        self.encoder.eval()
        try:
            with torch.no_grad():
                embedded = family_of(self.encoder).embed(self.encoder, tokens.ids)
                return run_layers(self.encoder, embedded, tokens.mask, start=0, stop=upto)
        finally:
            self.encoder.train(training)

    def finish(self, states: Tensor, tokens: Tokens, *, start: int) -> Tensor:
        """Last hidden states from the states that `states(tokens, upto=start)` gave."""
        self._check(start, "start")
        done = run_layers(self.encoder, states, tokens.mask, start=start, stop=self.n_layers)
        return family_of(self.encoder).close(self.encoder, done)

    def freeze(self, *, embeddings: bool = True, layers: int = 0) -> None:
        """Takes the embeddings and the first `layers` layers out of training; what was frozen before and is not named
        now learns again. All layers means all of the backbone."""
        self._check(layers, "layers")
        numbers = self.layer_numbers()
        for parameter in self.encoder.parameters():
            number = numbers.get(id(parameter))
            parameter.requires_grad_(not embeddings if number is None else number >= layers)

    def layer_numbers(self) -> dict[int, int]:
        """Which layer owns a parameter, by the parameter's `id`; what is not here belongs to the embeddings."""
        stack = family_of(self.encoder).layers(self.encoder)
        numbers = {id(parameter): number for number, layer in enumerate(stack) for parameter in layer.parameters()}
        # The norm after the last layer goes with that layer, not with the embeddings.
        for norm in (getattr(self.encoder, "final_norm", None), getattr(self._inner(), "final_layer_norm", None)):
            if norm is not None:
                numbers |= {id(parameter): len(stack) - 1 for parameter in norm.parameters()}
        return numbers

    def _inner(self) -> Any:
        return getattr(self.encoder, "encoder", None)

    def _check(self, number: int, name: str) -> None:
        if not 0 <= number <= self.n_layers:
            raise ConfigError(f"{name} is {number}; the backbone has {self.n_layers} layers")


def load_backbone(source: str | Path, *, dropout: float | None = None) -> Backbone:
    """The encoder in a folder, or of a hub name, in float32; ModelError if there is none. `dropout` is set in the place
    of its own, everywhere."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(source))
        if dropout is not None:
            for name in [name for name, value in config.to_dict().items() if "dropout" in name and value is not None]:
                setattr(config, name, dropout)
        kind, options = _class_of(config)
        encoder = kind.from_pretrained(str(source), config=config, dtype=torch.float32, **options)
    except (OSError, ValueError) as error:
        raise ModelError(f"there is no encoder {str(source)!r}: {error}") from error
    return Backbone(encoder)


def make_backbone(config: Any) -> Backbone:
    """An encoder with random weights, from a transformers config."""
    kind, options = _class_of(config)
    make = getattr(kind, "from_config", None) or kind._from_config
    return Backbone(make(config, dtype=torch.float32, **options))


def _class_of(config: Any) -> tuple[Any, dict[str, Any]]:
    import transformers

    if config.model_type in ("t5", "mt5"):
        # The plain class is an encoder and a decoder.
        return {"t5": transformers.T5EncoderModel, "mt5": transformers.MT5EncoderModel}[config.model_type], {}
    return transformers.AutoModel, {"add_pooling_layer": False} if config.model_type in _WITH_POOLER else {}
