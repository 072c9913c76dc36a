"""Whole and split batches: the gradient, and the memory of a step, of a small transformer with random weights."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.train.batching.grad_cache import Step, checkpointed_step, gradcache_step, whole_step
from plait.train.losses.contrastive import contrastive
from plait.train.tensors import BatchTargets, Encoded, Tokens

N_IDS, DIM, HEADS, LAYERS = 1000, 128, 4, 4


@dataclass(frozen=True, slots=True)
class _Loss:
    total: Tensor

    @property
    def parts(self) -> dict[str, float]:
        return {}


class SmallTransformer(nn.Module):
    """Embeddings, four layers without dropout, and the mean of the states as the vector of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N_IDS, DIM)
        layer = nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, tokens: Tokens, *, is_query: bool) -> Encoded:
        del is_query
        states = self.layers(self.embedding(tokens.ids), src_key_padding_mask=~tokens.mask)
        return Encoded(dense=F.normalize(states.mean(dim=1), dim=-1))


def gradient_and_memory(n_texts: int, length: int, parts: list[int]) -> dict[str, float]:
    """The largest difference of a gradient from that of the whole batch, relative to the largest gradient (`checkpoint
    N difference`, `gradcache N difference`), and the megabytes that a step adds to the process (`... MB`)."""
    steps: dict[str, Step] = {}
    for part in sorted(parts):  # the peak never falls, so small steps come first
        steps[f"gradcache {part}"] = gradcache_step(part)
        steps[f"checkpoint {part}"] = checkpointed_step(part)
    steps["whole"] = whole_step
    _step(whole_step, 1, 8)  # warm-up: what is loaded at first use is not counted
    _forget_peak()
    before, report, gradients = _peak(), {}, {}
    for name, step in steps.items():
        gradients[name] = _step(step, n_texts, length)
        report[f"{name} MB"] = _peak() - before
    whole = gradients["whole"]
    for name, gradient in gradients.items():
        report[f"{name} difference"] = float(np.abs(gradient - whole).max() / np.abs(whole).max())
    return report


def _step(step: Step, n_texts: int, length: int) -> NDArray[np.float32]:
    torch.manual_seed(0)
    model = SmallTransformer().double()  # double precision, so that only the order of sums differs
    ids = torch.randint(1, N_IDS, (2 * n_texts, length))
    mask = torch.ones_like(ids, dtype=torch.bool)
    queries, documents = (Tokens(ids[part], mask[part], mask[part]) for part in (slice(n_texts), slice(n_texts, None)))
    facts = BatchTargets(group=1, allowed=torch.ones(n_texts, n_texts, dtype=torch.bool), teacher=None, step=0)
    step(model, _objective, queries, documents, facts)
    return np.concatenate(
        [parameter.grad.numpy().ravel() for parameter in model.parameters() if parameter.grad is not None]
    )


def _objective(queries: Encoded, documents: Encoded, facts: BatchTargets) -> _Loss:
    assert queries.dense is not None
    assert documents.dense is not None
    return _Loss(contrastive(queries.dense @ documents.dense.T, facts.positive, temperature=0.05))


def _forget_peak() -> None:
    """Resets the peak memory of the process, where Linux allows it."""
    counter = Path("/proc/self/clear_refs")
    if counter.exists():
        counter.write_text("5")


def _peak() -> float:
    """The peak memory of the process in megabytes. Linux's status file starts with the program; `getrusage` starts with
    the memory of the parent process."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 2**10
