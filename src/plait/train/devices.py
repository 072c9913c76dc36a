"""Where a run computes: device, precision and processes, and what processes exchange. accelerate finds them, whether a
run was started alone, by `accelerate launch` or by `torchrun`.

Every process gathers what all have encoded and computes the loss of the whole batch. Its gradient flows through its own
part alone, so the sum over processes is the gradient of the whole batch.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from plait.errors import ConfigError
from plait.train.batching.microbatches import from_tensors, named_tensors, pad_second_axis
from plait.train.recipe import RunConfig
from plait.train.tensors import Encoded, Tokens

CPU, CUDA = "cpu", "cuda"


def check_device(device: str | None) -> None:
    """ConfigError for a device that plait does not know, or that torch does not have here. None is no choice: the GPU
    if torch has one, else the CPU."""
    if device not in (None, CPU, CUDA):
        raise ConfigError(f"device is {device!r}; choose {CPU} or {CUDA}, or leave it out")
    if device == CUDA and not torch.cuda.is_available():
        built = f"for CUDA {torch.version.cuda}, but sees no GPU" if torch.version.cuda else "without CUDA"
        raise ConfigError(
            f"device is 'cuda', and torch {torch.__version__} runs on the CPU only: it is built {built}; install a "
            f"driver and a torch for it (pytorch.org), or leave device out"
        )


def torch_device(device: str | None) -> torch.device:
    """The device by its name; for None the GPU if torch has one, else the CPU."""
    check_device(device)
    if device is None:
        device = CUDA if torch.cuda.is_available() else CPU
    return torch.device(device)


class Device:
    """The device of this process, and the precision in which models run on it. `device` is "cpu" or "cuda", and comes
    before the setting `cpu` of the recipe; None takes the GPU if there is one."""

    def __init__(self, config: RunConfig, device: str | None = None) -> None:
        from accelerate import PartialState  # not Accelerator: it fixes the precision of the whole process

        check_device(device)
        if config.threads:
            torch.set_num_threads(config.threads)
        self._state = PartialState(cpu=config.cpu if device is None else device == CPU)
        self._mixed = config.precision == "bf16"
        self.torch: torch.device = self._state.device

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and reports progress."""
        return bool(self._state.is_main_process)

    def wait(self) -> None:
        """Waits until all processes are here."""
        self._state.wait_for_everyone()

    def precision(self) -> AbstractContextManager[object]:
        """The context in which a model runs; weights and gradients are float32 in any precision."""
        return torch.autocast(self.torch.type, torch.bfloat16) if self._mixed else nullcontext()


class AutocastEncoder:
    """A model that runs in the run's precision and returns float32: losses need more digits than bfloat16 has."""

    def __init__(self, model: nn.Module, device: Device) -> None:
        self._model, self._device = model, device

    def __call__(self, tokens: Tokens, *, is_query: bool) -> Encoded:
        with self._device.precision():
            encoded: Encoded = self._model(tokens, is_query=is_query)
        return Encoded(
            dense=None if encoded.dense is None else encoded.dense.float(),
            sparse=None if encoded.sparse is None else encoded.sparse.float(),
            sparse_ids=encoded.sparse_ids,
            multi=None if encoded.multi is None else encoded.multi.float(),
            multi_mask=encoded.multi_mask,
        )


def seed_all(seed: int, *, by_process: bool = False) -> None:
    """Sets every random state; with `by_process`, to a seed that differs between processes, so that dropout does."""
    seed += 100_003 * process() if by_process else 0
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def n_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if n_processes() > 1 else 0


def gather(encoded: Encoded) -> Encoded:
    """The items of all processes, in the order of processes. Each process must bring the same number of items."""
    if n_processes() == 1:
        return encoded
    return from_tensors({name: _gather(tensor) for name, tensor in named_tensors(encoded).items()})


def _gather(tensor: Tensor) -> Tensor:
    if tensor.ndim > 1:
        longest = torch.tensor([tensor.shape[1]], device=tensor.device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        tensor = pad_second_axis(tensor, int(longest))
    # Not every backend can gather booleans; all can gather bytes.
    sent = tensor.detach().contiguous()
    sent = sent.to(torch.uint8) if tensor.dtype == torch.bool else sent
    received = [torch.empty_like(sent) for _ in range(n_processes())]
    dist.all_gather(received, sent)
    whole = [part.to(tensor.dtype) for part in received]
    whole[process()] = tensor  # the only part through which this process can send a gradient
    return torch.cat(whole)


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sums the gradients of all processes. A parameter that no process used keeps no gradient, as with one process."""
    if n_processes() == 1:
        return
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    used = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.int32)
    used = used.to(trained[0].device)
    dist.all_reduce(used, dist.ReduceOp.MAX)
    shared = [parameter for parameter, is_used in zip(trained, used.tolist(), strict=True) if is_used]
    flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in shared])
    dist.all_reduce(flat)
    start = 0
    for parameter in shared:
        parameter.grad = flat[start : start + parameter.numel()].view_as(parameter).clone()
        start += parameter.numel()


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def any_process(flag: bool) -> bool:
    """Whether the flag is set on any process, so that all processes take the same branch."""
    if n_processes() == 1:
        return flag
    shared = torch.tensor([int(flag)])
    if dist.get_backend() == "nccl":
        shared = shared.cuda()
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return bool(shared)


def from_first_process(value: float, device: torch.device) -> float:
    """The first process's value, on every process."""
    if n_processes() == 1:
        return value
    shared = torch.tensor([value], dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return float(shared)


def broadcast_weights(model: nn.Module) -> None:
    """Gives every process the weights of the first."""
    if n_processes() > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)
