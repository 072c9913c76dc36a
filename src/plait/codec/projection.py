"""Projection: narrower multi vectors, by directions that are fitted to the index's own token vectors, without labels.

A model may give the whole state of every token, of several hundred dimensions. The vectors of one collection vary in
far fewer directions. `fit_projection` takes the mean and the principal directions of a sample; a projected row is

    (row - mean) @ directions, scaled to length 1

Queries are projected alike. Mean and directions belong to the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.checks import check_flag, shown
from plait.embeddings import MultiVectors, Rows
from plait.errors import ConfigError, InputError

MAX_DIMS = 1 << 12
DIMS_STEP = 8  # compressed rows have a multiple of 8 dimensions
MAX_SAMPLE = 100_000  # vectors that a projection is fitted to
VECTORS_PER_DIM = 16  # that an index must have by default, for each dimension of the model's vectors
BLOCK = 1 << 13  # rows that are float64 at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """How many dimensions the multi vectors of an index keep, and when the directions are fitted."""

    dims: int
    centred: bool = True  # the mean is subtracted first
    min_vectors: int | None = None  # that the index must have; None: 16 for each dimension of the model's vectors

    def __post_init__(self) -> None:
        if type(self.dims) is not int or not DIMS_STEP <= self.dims <= MAX_DIMS or self.dims % DIMS_STEP:
            raise ConfigError(
                f"dims is {shown(self.dims)}; it must be a multiple of {DIMS_STEP} from {DIMS_STEP} to {MAX_DIMS}"
            )
        check_flag("centred", self.centred)
        if self.min_vectors is not None and (type(self.min_vectors) is not int or self.min_vectors < 2):
            raise ConfigError(f"min_vectors is {shown(self.min_vectors)}; it must be an integer of at least 2")

    @classmethod
    def from_dict(cls, stored: Any) -> Projection | None:
        """The inverse of `to_dict`; None stays None. ConfigError for anything else."""
        if stored is None:
            return None
        if not isinstance(stored, Mapping) or not {"dims"} <= set(stored) <= {"dims", "centred", "min_vectors"}:
            raise ConfigError(f"a stored projection has the key dims; got {shown(stored)}")
        return cls(**stored)

    def to_dict(self) -> dict[str, int | bool]:
        """As JSON values, for the catalogue."""
        values: dict[str, int | bool] = {"dims": self.dims}
        if not self.centred:
            values["centred"] = False
        if self.min_vectors is not None:
            values["min_vectors"] = self.min_vectors
        return values

    def __str__(self) -> str:
        return f"{self.dims} dimensions{'' if self.centred else ', not centred'}"

    def needed_vectors(self, width: int) -> int:
        """How many vectors of `width` dimensions an index must have before the directions are fitted."""
        return VECTORS_PER_DIM * width if self.min_vectors is None else self.min_vectors

    def check_width(self, width: int) -> None:
        """Raises ConfigError if vectors of `width` dimensions cannot be projected."""
        if self.dims > width:
            raise ConfigError(
                f"dims is {self.dims}, but the model gives multi vectors of {width} dimensions; choose at most {width}"
            )


@dataclass(frozen=True, slots=True)
class Energy:
    """Squared lengths of centred vectors, before and after projecting them."""

    n_vectors: int = 0
    before: float = 0.0
    after: float = 0.0

    @property
    def share(self) -> float:
        """The share that the projection keeps."""
        return self.after / self.before if self.before > 0 else 1.0

    def __add__(self, other: Energy) -> Energy:
        return Energy(self.n_vectors + other.n_vectors, self.before + other.before, self.after + other.after)


@dataclass(frozen=True, slots=True, eq=False)
class FittedProjection:
    """A mean and directions, and what they kept of the vectors that they were fitted to."""

    mean: NDArray[np.float32]  # (width,)
    directions: NDArray[np.float32]  # (width, dims), orthonormal columns
    energy: Energy

    def __post_init__(self) -> None:
        shapes = self.mean.shape, self.directions.shape
        if self.mean.ndim != 1 or self.directions.ndim != 2 or len(self.mean) != len(self.directions):
            raise InputError(f"mean and directions have the shapes {shapes}; they must be (width,) and (width, dims)")
        if not 1 <= self.dims <= self.width:
            raise InputError(f"{self.dims} directions were given for vectors of {self.width} dimensions")
        if not np.isfinite(self.mean).all() or not np.isfinite(self.directions).all():
            raise InputError("the mean or the directions hold a value that is not finite")

    @property
    def width(self) -> int:
        """Dimensions of the vectors that are projected."""
        return len(self.mean)

    @property
    def dims(self) -> int:
        """Dimensions of projected vectors."""
        return int(self.directions.shape[1])

    def project(self, rows: Rows) -> NDArray[np.float32]:
        """(rows, dims) the projected rows, of length 1; a row that equals the mean becomes zeros."""
        return self.measured(rows)[0]

    def measured(self, rows: Rows) -> tuple[NDArray[np.float32], Energy]:
        """The projected rows, and their energy before and after."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InputError(f"vectors of shape {rows.shape} were given; the projection takes (rows, {self.width})")
        centred = np.asarray(rows, np.float32) - self.mean
        projected = centred @ self.directions
        squares = np.einsum("ij,ij->i", projected, projected, dtype=np.float64)
        energy = Energy(
            len(rows), float(np.einsum("ij,ij->", centred, centred, dtype=np.float64)), float(squares.sum())
        )
        lengths = np.sqrt(squares).astype(np.float32)[:, None]
        return np.asarray(projected / np.where(lengths > 0, lengths, np.float32(1)), np.float32), energy

    def project_items(self, items: MultiVectors) -> MultiVectors:
        """The items with projected rows."""
        return MultiVectors(self.project(items.values), items.offsets)


def fit_projection(sample: Rows, projection: Projection) -> FittedProjection:
    """The mean and the principal directions of a sample (vectors, width); the same for the same sample.

    Moments are summed in float64. Without centring, the directions are those of the vectors themselves. The sign of a
    direction, which eigenvectors leave open, makes its largest value positive.
    """
    if sample.ndim != 2 or len(sample) < 2:
        raise InputError(f"a projection is fitted to two vectors or more; got the shape {sample.shape}")
    width = sample.shape[1]
    projection.check_width(width)
    mean, moment = np.zeros(width), np.zeros((width, width))
    for block in _blocks(sample):
        mean += block.sum(axis=0)
    mean = mean / len(sample) if projection.centred else np.zeros(width)
    for block in _blocks(sample):
        centred = block - mean
        moment += centred.T @ centred
    values, vectors = np.linalg.eigh(moment)
    directions = vectors[:, ::-1][:, : projection.dims]
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
    directions = directions * np.where(largest < 0, -1.0, 1.0)
    after = float(np.maximum(values[::-1][: projection.dims], 0).sum())
    energy = Energy(len(sample), float(np.trace(moment)), after)
    return FittedProjection(mean.astype(np.float32), np.ascontiguousarray(directions, np.float32), energy)


def _blocks(sample: Rows) -> Iterator[NDArray[np.float64]]:
    return (sample[start : start + BLOCK].astype(np.float64) for start in range(0, len(sample), BLOCK))
