"""Search modes in training: those that a recipe may name, and the one that a model is judged by if it names none."""

from __future__ import annotations

from collections.abc import Collection

from plait.errors import ConfigError
from plait.search.modes import find_mode

KINDS = ("dense", "sparse", "multi")
# Modes that need nothing besides the embeddings of the model in training.
IMPUTED = ("xtr", "colxtr", "warp")  # need an index of one segment whose multi vectors are compressed
MODES = ("hybrid", *KINDS, *IMPUTED, "m3-dense-sparse", "m3-all")


def check_mode(mode: str) -> None:
    """ConfigError unless a model in training can be searched with the mode."""
    if mode not in MODES:
        raise ConfigError(f"mode is {mode!r}; choose one of {', '.join(MODES)}")


def check_heads(mode: str, heads: Collection[str]) -> None:
    """ConfigError if the mode needs embeddings for which the model has no head."""
    missing = [kind for kind in find_mode(mode).needs if kind in KINDS and kind not in heads]
    if missing:
        raise ConfigError(
            f"mode is {mode!r}, which needs {' and '.join(missing)} embeddings, and the model has the heads "
            f"{', '.join(heads)}; choose another mode, or add [model.{missing[0]}]"
        )


def default_mode(heads: Collection[str], *, trained: str | None, imputed: bool = False) -> str:
    """How a model would be searched: `xtr` if it learned scores with imputed tokens, else the kind of the one head that
    is trained, else `hybrid`. `trained` is None if the loss trains every head."""
    if imputed:
        return "xtr"
    if trained is not None:
        return trained
    return next(iter(heads)) if len(heads) == 1 else "hybrid"
