"""Batches cut into parts and put together again: slices of tokens, and encoded parts padded to a common length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor
from torch.nn.functional import pad

from plait.train.tensors import Encoded, Tokens


def cut(tokens: Tokens, size: int) -> list[Tokens]:
    """Parts of at most `size` texts, each without the columns that are padding in all of its texts."""
    parts = []
    for start in range(0, len(tokens.ids), size):
        own = slice(start, start + size)
        used = (tokens.mask[own] | tokens.rows[own]).any(dim=0).nonzero()
        length = int(used.max()) + 1 if len(used) else 1
        parts.append(Tokens(tokens.ids[own, :length], tokens.mask[own, :length], tokens.rows[own, :length]))
    return parts


def tensors_of(encoded: Encoded) -> dict[str, Tensor]:
    """The tensors that are there, by name."""
    named = {field.name: getattr(encoded, field.name) for field in fields(Encoded)}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def from_tensors(tensors: dict[str, Tensor]) -> Encoded:
    """The other way round; what is not named is absent."""
    return Encoded(**{field.name: tensors.get(field.name) for field in fields(Encoded)})


def joined(parts: Sequence[Encoded]) -> Encoded:
    """One batch of all parts, in order. Shorter ones are padded with zeros, which no mask counts."""
    if len(parts) == 1:
        return parts[0]
    named = [tensors_of(part) for part in parts]
    return from_tensors({name: joined_tensors([own[name] for own in named]) for name in named[0]})


def joined_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Along the first axis; the second is padded to the longest."""
    if tensors[0].ndim > 1:
        longest = max(tensor.shape[1] for tensor in tensors)
        tensors = [padded(tensor, longest) for tensor in tensors]
    return torch.cat(list(tensors))


def padded(tensor: Tensor, length: int) -> Tensor:
    """The tensor with its second axis made `length` long by zeros (False for a mask)."""
    missing = length - tensor.shape[1]
    if missing == 0:
        return tensor
    return pad(tensor, [0, 0] * (tensor.ndim - 2) + [0, missing])
