"""Where a run computes: device, precision and processes. accelerate finds them, whether a run was started alone or by
`accelerate launch` or `torchrun`."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import nn

from plait.train.batching.gather import process
from plait.train.encoded import Encoded, Tokens
from plait.train.recipe import RunConfig


class Device:
    """The device of this process, and the precision that models run in on it."""

    def __init__(self, config: RunConfig) -> None:
        from accelerate import PartialState  # not Accelerator: that one fixes the precision of the whole process

        if config.threads:
            torch.set_num_threads(config.threads)
        self._state = PartialState(cpu=config.cpu)
        self._mixed = config.precision == "bf16"
        self.torch: torch.device = self._state.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks."""
        return bool(self._state.is_main_process)

    def wait(self) -> None:
        """Until all processes are here."""
        self._state.wait_for_everyone()

    def precision(self) -> AbstractContextManager[object]:
        """The precision that a model runs in; weights and gradients are float32 in any."""
        return torch.autocast(self.torch.type, torch.bfloat16) if self._mixed else nullcontext()


class InPrecision:
    """A model that runs in the run's precision and answers in float32: losses and gradients of vectors are too fine for
    half of it."""

    def __init__(self, model: nn.Module, device: Device) -> None:
        self._model, self._device = model, device

    def __call__(self, tokens: Tokens, *, is_query: bool) -> Encoded:
        with self._device.precision():
            found: Encoded = self._model(tokens, is_query=is_query)
        return Encoded(
            dense=None if found.dense is None else found.dense.float(),
            sparse=None if found.sparse is None else found.sparse.float(),
            sparse_ids=found.sparse_ids,
            multi=None if found.multi is None else found.multi.float(),
            multi_mask=found.multi_mask,
        )


def seed_all(seed: int, *, own: bool = False) -> None:
    """Sets every random state; with `own`, to one that differs by process, so that dropout does."""
    seed += 100_003 * process() if own else 0
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
