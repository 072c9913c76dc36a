"""The projection of the multi head begins with the principal directions of the backbone's own token states.

A random projection of 384 to 128 dimensions forgets much of what the backbone knows, and training has to bring it back.
The mean and the principal directions of token states of some corpora keep most of it from the first step on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from plait.codec.projection import DIMS_STEP, MAX_SAMPLE, Projection, fit_projection
from plait.errors import ConfigError, InputError
from plait.graphs.builder import Linear
from plait.train.corpora import corpus_batches
from plait.train.head_layers import array_of, copy_linear
from plait.train.model import Model
from plait.train.tokenization import TextTokenizer

BATCH_TEXTS = 16
VECTORS_PER_DIM = 4  # fewer do not show the principal directions


def fit_multi_head(model: Model, texts: TextTokenizer, corpora: Sequence[str], *, limit: int) -> None:
    """Sets the projection of the multi head to the principal directions of token states, centred if it has a bias."""
    project = model.multi.project if model.multi is not None else None
    if not isinstance(project, nn.Linear):
        raise ConfigError("projection_corpora is for a multi head that is one linear map; leave it out")
    width, dims = model.backbone.hidden, int(project.weight.shape[0])
    if dims > width:
        raise ConfigError(
            f"dim of the multi head is {dims}, and the backbone has {width}; projection_corpora needs less"
        )
    sample = _sample(model, texts, corpora, limit)
    if len(sample) < VECTORS_PER_DIM * width:
        raise InputError(
            f"projection_corpora has {len(sample):,} tokens; the directions of {width} dimensions need at least "
            f"{VECTORS_PER_DIM * width:,}. Name more corpora, or raise projection_limit"
        )
    bias: torch.Tensor | None = project.bias
    whole_steps = -(-dims // DIMS_STEP) * DIMS_STEP
    fitted = fit_projection(sample, Projection(dims=whole_steps, centred=bias is not None))
    directions = fitted.directions[:, :dims]
    copy_linear(project, Linear(directions, None if bias is None else -fitted.mean @ directions))


def _sample(model: Model, texts: TextTokenizer, corpora: Sequence[str], limit: int) -> NDArray[np.float32]:
    """States of the tokens that give a row, spread evenly over all corpora."""
    parts: list[NDArray[np.float32]] = []
    was_training = model.backbone.training
    model.backbone.eval()
    with torch.no_grad():
        for batch in corpus_batches(corpora, limit=limit, size=BATCH_TEXTS, key="projection_corpora"):
            tokens = texts.documents(batch)
            parts.append(array_of(model.backbone(tokens)[tokens.rows]))
    model.backbone.train(was_training)
    rows = np.concatenate(parts) if parts else np.zeros((0, model.backbone.hidden), np.float32)
    return rows[:: -(-len(rows) // MAX_SAMPLE) or 1]
