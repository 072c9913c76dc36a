"""Three ways to the same gradient: the batch whole, in parts whose insides are computed twice (checkpointing), or in
parts that are encoded without a graph first (GradCache). Parts need memory for one part, and time for one more pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plait.train.batching.microbatches import cut, from_tensors, joined, tensors_of
from plait.train.devices import gather
from plait.train.tensors import BatchFacts, Encoded, Loss, Objective, Tokens


class Encodes(Protocol):
    """The part of a model that a step uses."""

    def __call__(self, tokens: Tokens, *, is_query: bool) -> Encoded: ...


Step = Callable[[Encodes, Objective, Tokens, Tokens, BatchFacts], Loss]


def whole_step(model: Encodes, objective: Objective, queries: Tokens, documents: Tokens, facts: BatchFacts) -> Loss:
    """Encodes, scores against all processes, and adds the gradient to the model's parameters."""
    loss = objective(gather(model(queries, is_query=True)), gather(model(documents, is_query=False)), facts)
    loss.total.backward()
    return loss


def checkpointed_step(part: int) -> Step:
    """Parts of `part` texts; what is inside the model is kept for one of them at a time, and computed again."""

    def step(model: Encodes, objective: Objective, queries: Tokens, documents: Tokens, facts: BatchFacts) -> Loss:
        def encoded(tokens: Tokens, *, is_query: bool) -> Encoded:
            return gather(joined([_checkpointed(model, own, is_query=is_query) for own in cut(tokens, part)]))

        loss = objective(encoded(queries, is_query=True), encoded(documents, is_query=False), facts)
        loss.total.backward()
        return loss

    return step


def _checkpointed(model: Encodes, tokens: Tokens, *, is_query: bool) -> Encoded:
    def encode(ids: Tensor, mask: Tensor, rows: Tensor) -> Encoded:
        return model(Tokens(ids, mask, rows), is_query=is_query)

    # torch keeps the random state and sets it again, so that dropout drops the same in both passes. It must be given
    # the tensors themselves: it looks at them for the devices whose states it keeps.
    found: Encoded = checkpoint(encode, tokens.ids, tokens.mask, tokens.rows, use_reentrant=False)
    return found


def gradcache_step(part: int) -> Step:
    """Parts of `part` texts: encode them without a graph, take the gradient of the loss with respect to the vectors,
    then encode each part again, with the same random state, and send its gradient on."""

    def step(model: Encodes, objective: Objective, queries: Tokens, documents: Tokens, facts: BatchFacts) -> Loss:
        sides = [(own, True) for own in cut(queries, part)], [(own, False) for own in cut(documents, part)]
        states, leaves = [], []
        for tokens, is_query in (*sides[0], *sides[1]):
            states.append(_random_state(tokens.ids))
            with torch.no_grad():
                leaves.append(_leaf(model(tokens, is_query=is_query)))
        cut_at = len(sides[0])
        loss = objective(gather(joined(leaves[:cut_at])), gather(joined(leaves[cut_at:])), facts)
        loss.total.backward()
        after = _random_state(queries.ids)
        for (tokens, is_query), state, leaf in zip((*sides[0], *sides[1]), states, leaves, strict=True):
            _set_random_state(state)
            _send(model(tokens, is_query=is_query), leaf)
        _set_random_state(after)
        return loss

    return step


def _leaf(encoded: Encoded) -> Encoded:
    """The same values as the start of a graph."""
    named = tensors_of(encoded)
    return from_tensors(
        {name: tensor.detach().requires_grad_(tensor.is_floating_point()) for name, tensor in named.items()}
    )


def _send(encoded: Encoded, leaf: Encoded) -> None:
    """Goes on backwards from the gradients that the leaf has received."""
    received = tensors_of(leaf)
    outputs, gradients = [], []
    for name, tensor in tensors_of(encoded).items():
        gradient = received[name].grad
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


def step_of(split: str, part: int) -> Step:
    """The step that a recipe names."""
    return {"none": whole_step, "checkpoint": checkpointed_step(part), "gradcache": gradcache_step(part)}[split]
