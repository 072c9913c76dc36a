"""`Backbone`: a transformers encoder as a function from tokens to last hidden states. Its layers can be frozen, and a
pass can stop after a layer and continue later, so that the states of frozen layers can be cached.

`FAMILIES` says how to run the layers of each kind of encoder one by one. The whole pass is the library's own; a test
checks that both give the same states for each family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, ModelError
from plait.train.tensors import Tokens

# plait does not use the pooler of these models; without it, no random pooler is made and saved.
_WITH_POOLER = ("bert", "roberta", "xlm-roberta", "mpnet")


class Backbone(nn.Module):
    """Tokens (items, length) to last hidden states (items, length, hidden). `encoder` is a transformers model."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder: Any = encoder

    @property
    def hidden(self) -> int:
        """The hidden size."""
        return int(self.encoder.config.hidden_size)

    @property
    def n_ids(self) -> int:
        """The number of token embeddings."""
        return int(self.encoder.get_input_embeddings().weight.shape[0])

    @property
    def n_layers(self) -> int:
        return len(layer_stack(self.encoder))

    def forward(self, tokens: Tokens) -> Tensor:
        states: Tensor = self.encoder(input_ids=tokens.ids, attention_mask=tokens.mask.long()).last_hidden_state
        return states

    def states(self, tokens: Tokens, *, upto: int) -> Tensor:
        """The states after the first `upto` layers; 0 gives the embeddings. Without gradient and without dropout: they
        are cached, and must be the same each time."""
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
        """Last hidden states, from states that `states(tokens, upto=start)` returned."""
        self._check(start, "start")
        last = run_layers(self.encoder, states, tokens.mask, start=start, stop=self.n_layers)
        return family_of(self.encoder).close(self.encoder, last)

    def freeze(self, *, embeddings: bool = True, layers: int = 0) -> None:
        """Freezes the embeddings and the first `layers` layers, and unfreezes all others."""
        self._check(layers, "layers")
        numbers = self.layer_numbers()
        for parameter in self.encoder.parameters():
            number = numbers.get(id(parameter))
            parameter.requires_grad_(not embeddings if number is None else number >= layers)

    def layer_numbers(self) -> dict[int, int]:
        """The layer of each parameter, by the parameter's `id`; parameters of the embeddings are not included."""
        stack = layer_stack(self.encoder)
        numbers = {id(parameter): number for number, layer in enumerate(stack) for parameter in layer.parameters()}
        # The norm after the last layer belongs to that layer, not to the embeddings.
        inner = getattr(self.encoder, "encoder", None)
        for norm in (getattr(self.encoder, "final_norm", None), getattr(inner, "final_layer_norm", None)):
            if norm is not None:
                numbers |= {id(parameter): len(stack) - 1 for parameter in norm.parameters()}
        return numbers

    def _check(self, number: int, name: str) -> None:
        if not 0 <= number <= self.n_layers:
            raise ConfigError(f"{name} is {number}; the backbone has {self.n_layers} layers")


@contextmanager
def _quiet_loading() -> Iterator[None]:
    """Without the progress bar of transformers, and without its report of tensors that belong to heads: the caller
    checks what is missing."""
    from transformers import logging

    before, had_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if had_bar:
            logging.enable_progress_bar()


def load_backbone(source: str | Path, *, dropout: float | None = None) -> Backbone:
    """The encoder of a folder or hub name, in float32; ModelError if there is none, or if some of its weights are
    missing. `dropout` replaces every dropout of its config."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(source))
        if dropout is not None:
            for name in [name for name, value in config.to_dict().items() if "dropout" in name and value is not None]:
                setattr(config, name, dropout)
        cls, options = _class_of(config)
        with _quiet_loading():
            encoder, info = cls.from_pretrained(
                str(source), config=config, dtype=torch.float32, output_loading_info=True, **options
            )
    except (OSError, ValueError) as error:
        raise ModelError(f"there is no encoder {str(source)!r}: {error}") from error
    _refuse_random_weights(source, info["missing_keys"])
    _separate_storage(encoder)
    return Backbone(encoder)


def _separate_storage(encoder: nn.Module) -> None:
    """Gives each parameter memory of its own: transformers splits matrices of some checkpoints into views of one
    tensor, and safetensors saves no views."""
    for parameter in encoder.parameters():
        if parameter.untyped_storage().nbytes() != parameter.numel() * parameter.element_size():
            parameter.data = parameter.data.clone()


def _refuse_random_weights(source: str | Path, missing: Iterable[str]) -> None:
    """transformers makes weights up that a folder does not have, and only logs it."""
    names = sorted(name for name in missing if "pooler" not in name)
    if names:
        raise ModelError(
            f"{source} has no weights for {len(names)} tensors of the encoder, such as {names[0]!r}; transformers "
            f"would make them random. Fetch the checkpoint again"
        )


def make_backbone(config: Any) -> Backbone:
    """An encoder with random weights, from a transformers config."""
    cls, options = _class_of(config)
    make = getattr(cls, "from_config", None) or cls._from_config
    return Backbone(make(config, dtype=torch.float32, **options))


def random_config(settings: Mapping[str, Any], *, n_ids: int) -> Any:
    """The transformers config of a recipe's `model.random`; `n_ids` is the vocabulary size unless it sets one."""
    from transformers import AutoConfig

    try:
        return AutoConfig.for_model(**{"vocab_size": n_ids, **settings})
    except (ValueError, TypeError) as error:
        raise ConfigError(f"[model] random is not a transformers config: {error}") from None


def _class_of(config: Any) -> tuple[Any, dict[str, Any]]:
    import transformers

    if config.model_type in ("t5", "mt5"):
        # AutoModel would load the decoder as well.
        return {"t5": transformers.T5EncoderModel, "mt5": transformers.MT5EncoderModel}[config.model_type], {}
    return transformers.AutoModel, {"add_pooling_layer": False} if config.model_type in _WITH_POOLER else {}


def layer_stack(encoder: Any) -> nn.ModuleList:
    """The layers of a transformers encoder, of any family; ModelError if it has none."""
    model_type, n_layers = encoder.config.model_type, getattr(encoder.config, "num_hidden_layers", None)
    if model_type in FAMILIES:
        return FAMILIES[model_type].layers(encoder)
    for module in encoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return module
    raise ModelError(f"the layers of a {model_type!r} encoder cannot be found; plait cannot train it")


RunLayer = Callable[[int, Tensor], Any]  # the number of a layer and its input states -> its output


@dataclass(frozen=True, slots=True)
class Family:
    """How to run encoders of one architecture layer by layer."""

    layers: Callable[[Any], nn.ModuleList]
    embed: Callable[[Any, Tensor], Tensor]  # ids (items, length) -> states
    prepare: Callable[[Any, Tensor, Tensor], RunLayer]  # encoder, states and mask -> a function that runs a layer
    close: Callable[[Any, Tensor], Tensor]  # states after the last layer -> last hidden states
    positions: Callable[[Any, int], Tensor] | None  # absolute position embeddings: length -> (length, hidden)


def family_of(encoder: Any) -> Family:
    """The family of a transformers model; ModelError if its layers cannot be run one by one."""
    model_type = encoder.config.model_type
    if model_type not in FAMILIES:
        raise ModelError(
            f"the layers of a {model_type!r} encoder cannot be split, frozen or cached; plait can do so for "
            f"{', '.join(sorted(FAMILIES))}"
        )
    return FAMILIES[model_type]


def run_layers(encoder: Any, states: Tensor, mask: Tensor, *, start: int, stop: int) -> Tensor:
    """States (items, length, hidden) before layer `start` to states before layer `stop`."""
    run_layer = family_of(encoder).prepare(encoder, states, mask)
    for number in range(start, stop):
        out = run_layer(number, states)
        # Some families return a tuple: the states, and more.
        states = out[0] if isinstance(out, tuple) else out
    return states


def _attention_mask(encoder: Any, states: Tensor, mask: Tensor) -> Any:
    from transformers.masking_utils import create_bidirectional_mask

    return create_bidirectional_mask(config=encoder.config, inputs_embeds=states, attention_mask=mask.long())


def _prepare_bert(encoder: Any, states: Tensor, mask: Tensor) -> RunLayer:
    attention, layers = _attention_mask(encoder, states, mask), encoder.encoder.layer
    return lambda number, states: layers[number](states, attention)


def _prepare_mpnet(encoder: Any, states: Tensor, mask: Tensor) -> RunLayer:
    attention, layers = _attention_mask(encoder, states, mask), encoder.encoder.layer
    bias = encoder.encoder.compute_position_bias(states)
    return lambda number, states: layers[number](states, attention, bias)


def _prepare_t5(encoder: Any, states: Tensor, mask: Tensor) -> RunLayer:
    length, blocks = states.shape[1], encoder.encoder.block
    # Only the first block has relative position embeddings; the other blocks reuse its bias. The mask is added to the
    # bias, because older releases of transformers ignore the mask if a bias is given.
    bias = blocks[0].layer[0].SelfAttention.compute_bias(length, length, device=states.device)
    masked_bias = bias.masked_fill(~mask[:, None, None, :], torch.finfo(states.dtype).min)
    return lambda number, states: blocks[number](states, None, masked_bias)


def _close_t5(encoder: Any, states: Tensor) -> Tensor:
    closed: Tensor = encoder.encoder.dropout(encoder.encoder.final_layer_norm(states))
    return closed


def _prepare_modernbert(encoder: Any, states: Tensor, mask: Tensor) -> RunLayer:
    from transformers.masking_utils import create_bidirectional_sliding_window_mask

    attention = {
        "full_attention": _attention_mask(encoder, states, mask),
        "sliding_attention": create_bidirectional_sliding_window_mask(
            config=encoder.config, inputs_embeds=states, attention_mask=mask.long()
        ),
    }
    positions = torch.arange(states.shape[1], device=states.device).unsqueeze(0)
    rotary = {kind: encoder.rotary_emb(states, positions, kind) for kind in set(encoder.config.layer_types)}

    def run_layer(number: int, states: Tensor) -> Any:
        layer = encoder.layers[number]
        kind = layer.attention_type
        return layer(states, attention_mask=attention[kind], position_embeddings=rotary[kind])

    return run_layer


def _unchanged(_encoder: Any, states: Tensor) -> Tensor:
    return states


def _position_embeddings(encoder: Any, length: int, first: int) -> Tensor:
    table: Tensor = encoder.embeddings.position_embeddings.weight
    if first + length > len(table):
        raise ModelError(
            f"the encoder has {len(table) - first} positions, and a text has {length} tokens; lower the length"
        )
    return table[first : first + length]


def _bert_family(first_position: Callable[[Any], int]) -> Family:
    return Family(
        layers=lambda encoder: encoder.encoder.layer,
        embed=lambda encoder, ids: encoder.embeddings(input_ids=ids),
        prepare=_prepare_bert,
        close=_unchanged,
        positions=lambda encoder, length: _position_embeddings(encoder, length, first_position(encoder)),
    )


def _after_padding_id(encoder: Any) -> int:
    """RoBERTa and MPNet count positions from the padding id."""
    return int(encoder.embeddings.padding_idx) + 1


_BERT = _bert_family(lambda _encoder: 0)
_ROBERTA = _bert_family(_after_padding_id)
_MPNET = Family(
    layers=_BERT.layers, embed=_BERT.embed, prepare=_prepare_mpnet, close=_unchanged, positions=_ROBERTA.positions
)
_T5 = Family(
    layers=lambda encoder: encoder.encoder.block,
    embed=lambda encoder, ids: encoder.encoder.dropout(encoder.encoder.embed_tokens(ids)),
    prepare=_prepare_t5,
    close=_close_t5,
    positions=None,
)
_MODERNBERT = Family(
    layers=lambda encoder: encoder.layers,
    embed=lambda encoder, ids: encoder.embeddings(input_ids=ids),
    prepare=_prepare_modernbert,
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
