"""Three ways to compute the same gradient: the whole batch at once, microbatches with gradient checkpointing, and
GradCache. The last two need the memory of one microbatch and the time of one more forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plait.train.batching.microbatches import concat_encoded, from_tensors, named_tensors, split_tokens
from plait.train.devices import gather
from plait.train.tensors import BatchTargets, Encoded, Loss, LossFunction, Tokens


class Encodes(Protocol):
    """The call of a model that a step uses."""

    def __call__(self, tokens: Tokens, *, is_query: bool) -> Encoded: ...


Step = Callable[[Encodes, LossFunction, Tokens, Tokens, BatchTargets], Loss]


def backward_of(split: str, microbatch: int) -> Step:
    """The step that a recipe's batching.split names."""
    return {
        "none": whole_step,
        "checkpoint": checkpointed_step(microbatch),
        "gradcache": gradcache_step(microbatch),
    }[split]


def whole_step(
    model: Encodes, loss_function: LossFunction, queries: Tokens, documents: Tokens, targets: BatchTargets
) -> Loss:
    """Encodes, computes the loss over all processes, and adds the gradient to the model's parameters."""
    loss = loss_function(gather(model(queries, is_query=True)), gather(model(documents, is_query=False)), targets)
    loss.total.backward()
    return loss


def checkpointed_step(microbatch: int) -> Step:
    """Encodes `microbatch` texts at a time. The activations of one microbatch at a time are in memory; the backward
    pass computes them again."""

    def step(
        model: Encodes, loss_function: LossFunction, queries: Tokens, documents: Tokens, targets: BatchTargets
    ) -> Loss:
        def encode(tokens: Tokens, *, is_query: bool) -> Encoded:
            parts = [_checkpointed(model, part, is_query=is_query) for part in split_tokens(tokens, microbatch)]
            return gather(concat_encoded(parts))

        loss = loss_function(encode(queries, is_query=True), encode(documents, is_query=False), targets)
        loss.total.backward()
        return loss

    return step


def _checkpointed(model: Encodes, tokens: Tokens, *, is_query: bool) -> Encoded:
    def encode(ids: Tensor, mask: Tensor, rows: Tensor) -> Encoded:
        return model(Tokens(ids, mask, rows), is_query=is_query)

    # torch saves and restores the random state, so that dropout is the same in both passes. It needs the tensors as
    # arguments, to know the devices whose states it saves.
    encoded: Encoded = checkpoint(encode, tokens.ids, tokens.mask, tokens.rows, use_reentrant=False)
    return encoded


def gradcache_step(microbatch: int) -> Step:
    """GradCache: encodes microbatches without a graph, takes the gradient of the loss with respect to the vectors, then
    encodes each microbatch again with the same random state and backpropagates its part of that gradient."""

    def step(
        model: Encodes, loss_function: LossFunction, queries: Tokens, documents: Tokens, targets: BatchTargets
    ) -> Loss:
        query_parts = [(part, True) for part in split_tokens(queries, microbatch)]
        parts = [*query_parts, *((part, False) for part in split_tokens(documents, microbatch))]
        states, leaves = [], []
        for tokens, is_query in parts:
            states.append(_random_state(tokens.ids))
            with torch.no_grad():
                leaves.append(_as_leaf(model(tokens, is_query=is_query)))
        n_query_parts = len(query_parts)
        loss = loss_function(
            gather(concat_encoded(leaves[:n_query_parts])), gather(concat_encoded(leaves[n_query_parts:])), targets
        )
        loss.total.backward()
        after = _random_state(queries.ids)
        for (tokens, is_query), state, leaf in zip(parts, states, leaves, strict=True):
            _set_random_state(state)
            _backpropagate(model(tokens, is_query=is_query), leaf)
        _set_random_state(after)
        return loss

    return step


def _as_leaf(encoded: Encoded) -> Encoded:
    """The same values as leaves of a new graph."""
    named = named_tensors(encoded)
    return from_tensors(
        {name: tensor.detach().requires_grad_(tensor.is_floating_point()) for name, tensor in named.items()}
    )


def _backpropagate(encoded: Encoded, leaf: Encoded) -> None:
    """Backpropagates the gradients of the leaf through the tensors of `encoded`."""
    leaves = named_tensors(leaf)
    outputs, gradients = [], []
    for name, tensor in named_tensors(encoded).items():
        gradient = leaves[name].grad
        if tensor.requires_grad and gradient is not None:
            outputs.append(tensor)
            gradients.append(gradient)
    if outputs:
        torch.autograd.backward(outputs, gradients)


RandomState = tuple[Tensor, Tensor | None, torch.device]


def _random_state(on: Tensor) -> RandomState:
    device = on.device
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None, device


def _set_random_state(state: RandomState) -> None:
    cpu, gpu, device = state
    torch.set_rng_state(cpu)
    if gpu is not None:
        torch.cuda.set_rng_state(gpu, device)
