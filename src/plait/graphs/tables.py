"""Tables that follow from a config and are constants of a graph: relative positions and rotary angles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import ModelError
from plait.graphs.builder import Floats


def relative_table(embedding: Floats, length: int, max_distance: int) -> Floats:
    """(heads, 2 * length - 1): the bias of attention (T5, MPNet) by key position minus query position, from the
    embedding (buckets, heads)."""
    distances = np.arange(1 - length, length)
    return np.ascontiguousarray(embedding[_bucket(distances, len(embedding), max_distance)].T)


def _bucket(distances: NDArray[np.int64], n_buckets: int, max_distance: int) -> NDArray[np.int64]:
    """Half of the buckets are for keys before the query; near distances have one bucket each, far ones share them by
    the logarithm. float32, as the libraries compute it: a bucket must not change by rounding."""
    half = n_buckets // 2
    exact = half // 2
    size = np.abs(distances)
    ratio = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(exact))
    far = exact + (ratio / np.float32(math.log(max_distance / exact)) * np.float32(half - exact)).astype(np.int64)
    bucket = np.where(size < exact, size, np.minimum(far, half - 1))
    return bucket + np.where(distances > 0, half, 0)


def deberta_distances(config: Mapping[str, Any], length: int) -> NDArray[np.int64]:
    """(2 * length - 1,): the row of the relative embeddings (DeBERTa) by query position minus key position."""
    distances, highest = np.arange(1 - length, length), int(config["max_relative_positions"])
    span, buckets = highest, int(config["position_buckets"])
    if buckets > 0:
        distances, span = _log_bucket(distances, buckets, highest), buckets
    return np.clip(distances + span, 0, 2 * span - 1)


def _log_bucket(distances: NDArray[np.int64], n_buckets: int, highest: int) -> NDArray[np.int64]:
    middle = n_buckets // 2
    size = np.where(np.abs(distances) < middle, middle - 1, np.abs(distances))
    scale = np.log(np.float32((highest - 1) / middle))
    far = np.ceil(np.log(size.astype(np.float32) / np.float32(middle)) / scale * np.float32(middle - 1)) + middle
    return np.where(size <= middle, distances, far.astype(np.int64) * np.sign(distances))


def rotary_tables_of(rope: Mapping[str, Any], dim: int, length: int) -> tuple[Floats, Floats]:
    """Cosines and sines (length, dim) of rotary positions. `rope` has `rope_type`, `rope_theta`, and the numbers of its
    type. ModelError for a type that plait does not know, or a length that it does not reach."""
    frequencies = _frequencies(rope, dim, length)
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies
    angles = np.concatenate([angles, angles], axis=1)
    return np.cos(angles), np.sin(angles)


def _frequencies(rope: Mapping[str, Any], dim: int, length: int) -> Floats:
    kind, theta, factor = rope.get("rope_type", "default"), float(rope["rope_theta"]), float(rope.get("factor") or 1)
    steps = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    if kind == "dynamic" and length > int(rope.get("original") or rope.get("original_max_position_embeddings") or 0):
        raise ModelError(
            f"rotary positions of the type 'dynamic' change with the length of a batch beyond "
            f"{rope.get('original')} tokens, and a graph has one table; convert with at most that length"
        )
    if kind == "ntk":  # the fixed and mixed scalings of GTE's remote code
        return _ntk(theta, steps, dim, factor, rope.get("mixed_b"))
    frequencies = _powers(theta, steps)
    if kind in ("default", "dynamic"):
        return frequencies
    if kind == "linear":
        return frequencies / np.float32(factor)
    if kind == "llama3":
        return _llama3(frequencies, rope, factor)
    raise ModelError(
        f"rotary positions of the type {kind!r} cannot be exported; plait knows default, linear, ntk, llama3"
    )


def _ntk(theta: float, steps: Floats, dim: int, factor: float, mixed: float | None) -> Floats:
    if mixed is None:
        return _powers(theta * factor, steps) / np.float32(factor ** (2 / dim))
    rate = math.log(factor) / (dim / 2) ** mixed
    stretched: Floats = np.exp(np.float32(rate) * np.arange(1, dim // 2 + 1, dtype=np.float32) ** np.float32(mixed))
    return _powers(theta, steps) / stretched


def _powers(theta: float, steps: Floats) -> Floats:
    powers: Floats = np.power(np.float32(theta), steps)
    return np.float32(1) / powers


def _llama3(frequencies: Floats, rope: Mapping[str, Any], factor: float) -> Floats:
    """Long waves are divided by the factor, short ones stay, those between are mixed."""
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    length = float(rope["original_max_position_embeddings"])
    waves = 2 * math.pi / frequencies
    smooth = np.clip((length / waves - low) / (high - low), 0, 1)
    mixed = (1 - smooth) * frequencies / factor + smooth * frequencies
    result = np.where(waves > length / low, frequencies / factor, np.where(waves < length / high, frequencies, mixed))
    return result.astype(np.float32)
