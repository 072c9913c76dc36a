"""Parts of heads as arrays."""

from __future__ import annotations

from dataclasses import dataclass

from plait.train.export.builder import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A map of states: states @ weight + bias."""

    weight: Floats  # (hidden, out)
    bias: Floats | None = None  # (out,)


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """A layer norm."""

    gain: Floats
    shift: Floats
    epsilon: float
