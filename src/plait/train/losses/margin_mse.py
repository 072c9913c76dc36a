"""MarginMSE: the student's margin between positive and negative should equal the teacher's margin."""

from __future__ import annotations

from torch import Tensor

from plait.errors import InputError


def margin_mse(scores: Tensor, teacher: Tensor, *, known: Tensor | None = None) -> Tensor:
    """Mean squared difference of margins. Both are (queries, ways) with the positive in column 0; each other column
    gives one margin. `known` (queries, ways) is False for padding. The teacher gets no gradient. 0 without a margin.
    The scales must fit: if the teacher gives logits, student scores must be able to grow as large."""
    if scores.shape != teacher.shape:
        raise InputError(
            f"scores are {tuple(scores.shape)} and the teacher's are {tuple(teacher.shape)}; they must match"
        )
    wanted = teacher.detach()
    squares = ((scores[:, :1] - scores[:, 1:]) - (wanted[:, :1] - wanted[:, 1:])) ** 2
    if known is None:
        return squares.sum() / max(1, squares.numel())
    counted = known[:, 1:] & known[:, :1]
    return squares.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)
