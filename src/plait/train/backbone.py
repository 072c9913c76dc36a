"""`Backbone`: an encoder of the transformers library, as a function from tokens to last hidden states, with its layers
divided where training wants it: a lower part whose states can be kept, and an upper part that learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plait.errors import ConfigError, ModelError
from plait.train.encoded import Tokens
from plait.train.families import family_of, run_layers

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
