"""Where a run computes: device, precision and processes. accelerate finds them, whether a run was started alone or by
`accelerate launch` or `torchrun`."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from plait.train.batching.microbatches import from_tensors, padded, tensors_of
from plait.train.recipe import RunConfig
from plait.train.tensors import Encoded, Tokens


def n_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process() -> int:
    return dist.get_rank() if n_processes() > 1 else 0


def gather(encoded: Encoded) -> Encoded:
    """The items of all processes, in their order: dense, sparse and multi alike. Each process must bring as many."""
    if n_processes() == 1:
        return encoded
    return from_tensors({name: _gather(tensor) for name, tensor in tensors_of(encoded).items()})


def _gather(tensor: Tensor) -> Tensor:
    if tensor.ndim > 1:
        longest = torch.tensor([tensor.shape[1]], device=tensor.device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        tensor = padded(tensor, int(longest))
    # Booleans cannot be gathered by every backend; bytes can.
    sent = tensor.detach().contiguous()
    sent = sent.to(torch.uint8) if tensor.dtype == torch.bool else sent
    received = [torch.empty_like(sent) for _ in range(n_processes())]
    dist.all_gather(received, sent)
    whole = [other.to(tensor.dtype) for other in received]
    whole[process()] = tensor  # the only part that this process can send a gradient through
    return torch.cat(whole)


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Adds up the gradients of all processes. A parameter that no process used keeps none, as with one process."""
    if n_processes() == 1:
        return
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    used = torch.tensor([parameter.grad is not None for parameter in wanted], dtype=torch.int32)
    used = used.to(wanted[0].device)
    dist.all_reduce(used, dist.ReduceOp.MAX)
    shared = [parameter for parameter, is_used in zip(wanted, used.tolist(), strict=True) if is_used]
    flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in shared])
    dist.all_reduce(flat)
    start = 0
    for parameter in shared:
        parameter.grad = flat[start : start + parameter.numel()].view_as(parameter).clone()
        start += parameter.numel()


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def on_any(flag: bool) -> bool:
    """Whether the flag is set on any process: all go the same way."""
    if n_processes() == 1:
        return flag
    held = torch.tensor([int(flag)])
    if dist.get_backend() == "nccl":
        held = held.cuda()
    dist.all_reduce(held, dist.ReduceOp.MAX)
    return bool(held)


def copy_weights(model: nn.Module) -> None:
    """Gives every process the weights of the first."""
    if n_processes() > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)


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
