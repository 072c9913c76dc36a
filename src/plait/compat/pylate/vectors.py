"""Embeddings in the shapes that PyLate takes: one array, a list of arrays, nested lists, or tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.checks import shown
from plait.embeddings import MultiVectors
from plait.errors import InputError

Floats = NDArray[np.float32]


def as_rows(value: Any, what: str) -> Floats:
    """The vectors of one text, (rows, dim) float32. A tensor of torch is read without importing torch."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    try:
        rows = np.asarray(value, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be vectors of one length; got {shown(value)}: {error}") from None
    if rows.ndim == 3 and len(rows) == 1:
        rows = rows[0]  # `padding=True` gives texts this shape
    if rows.ndim != 2:
        raise InputError(f"{what} have shape {rows.shape}; they must be (rows, dim) for each text")
    return rows


def as_items(values: Any, what: str) -> list[Floats]:
    """The vectors of each text. One array of two dimensions is one text."""
    if getattr(values, "ndim", None) == 2:
        return [as_rows(values, what)]
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a list of arrays; got {shown(values)}")
    return [as_rows(value, what) for value in values]


def as_multi_vectors(values: Any, what: str) -> MultiVectors:
    """The same as one batch."""
    items = as_items(values, what)
    if len({item.shape[1] for item in items}) > 1:
        raise InputError(
            f"{what} have {sorted({item.shape[1] for item in items})} dimensions; they must have one number"
        )
    return MultiVectors.from_items(items)
