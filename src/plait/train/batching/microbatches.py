"""Splitting batches and joining them again: slices of tokens, and encoded parts padded to a common length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor
from torch.nn.functional import pad

from plait.train.tensors import Encoded, Tokens


def split_tokens(tokens: Tokens, size: int) -> list[Tokens]:
    """Microbatches of at most `size` texts, each without the columns that are padding in all of its texts."""
    parts = []
    for start in range(0, len(tokens.ids), size):
        span = slice(start, start + size)
        used = (tokens.mask[span] | tokens.rows[span]).any(dim=0).nonzero()
        length = int(used.max()) + 1 if len(used) else 1
        parts.append(Tokens(tokens.ids[span, :length], tokens.mask[span, :length], tokens.rows[span, :length]))
    return parts


def named_tensors(encoded: Encoded) -> dict[str, Tensor]:
    """The tensors that are not None, by name."""
    named = {field.name: getattr(encoded, field.name) for field in fields(Encoded)}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def from_tensors(tensors: dict[str, Tensor]) -> Encoded:
    """The inverse of `named_tensors`."""
    return Encoded(**{field.name: tensors.get(field.name) for field in fields(Encoded)})


def concat_encoded(parts: Sequence[Encoded]) -> Encoded:
    """One batch of all parts, in order. Shorter parts are padded with zeros, which the masks exclude."""
    if len(parts) == 1:
        return parts[0]
    named = [named_tensors(part) for part in parts]
    return from_tensors({name: concat_padded([tensors[name] for tensors in named]) for name in named[0]})


def concat_padded(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenates along the first axis; the second axis is padded to the longest."""
    if tensors[0].ndim > 1:
        longest = max(tensor.shape[1] for tensor in tensors)
        tensors = [pad_second_axis(tensor, longest) for tensor in tensors]
    return torch.cat(list(tensors))


def pad_second_axis(tensor: Tensor, length: int) -> Tensor:
    """The tensor with its second axis extended to `length` by zeros (False for a mask)."""
    missing = length - tensor.shape[1]
    if missing == 0:
        return tensor
    return pad(tensor, [0, 0] * (tensor.ndim - 2) + [0, missing])
