"""MarginMSE: the student's margin between positive and negative should be the teacher's margin."""

from __future__ import annotations

from torch import Tensor

from plait.errors import InputError


def margin_mse(scores: Tensor, teacher: Tensor, *, known: Tensor | None = None) -> Tensor:
    """Mean squared difference of margins; both are (queries, ways) with the positive in column 0, and each of the other
    columns gives one margin. `known` (queries, ways) names the passages that are there. The teacher gets no gradient.
    0 without a margin. The scales must agree: a teacher of logits asks for student scores that can grow as large."""
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
