"""Where training runs: a device by name, errors without CUDA, and the processor as the fall-back."""

from __future__ import annotations

import pytest
import torch

from plait.errors import ConfigError
from plait.train.devices import Device, check_device, torch_device
from plait.train.recipe import RunConfig


def set_cuda(monkeypatch: pytest.MonkeyPatch, *, is_available: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_available)


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(ConfigError, match="device is 'tpu'; choose cpu or cuda"):
        check_device("tpu")


@pytest.mark.parametrize(("cuda", "said"), [(None, "built without CUDA"), ("13.0", "for CUDA 13.0, but sees no GPU")])
def test_cuda_without_a_gpu_is_an_error_that_says_what_torch_has(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, said: str
) -> None:
    set_cuda(monkeypatch, is_available=False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(ConfigError, match=f"device is 'cuda', and torch {torch.__version__.split('+')[0]}.*{said}"):
        check_device("cuda")
    with pytest.raises(ConfigError, match="runs on the CPU only"):
        Device(RunConfig(), "cuda")


def test_without_a_choice_the_gpu_is_taken_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    set_cuda(monkeypatch, is_available=False)
    assert torch_device(None) == torch.device("cpu")
    set_cuda(monkeypatch, is_available=True)
    assert torch_device(None) == torch.device("cuda")
    assert torch_device("cpu") == torch.device("cpu")
    check_device("cuda")


def test_the_device_comes_before_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    class State:
        device, is_main_process = torch.device("cpu"), True

        def __init__(self, *, cpu: bool) -> None:
            asked.append(cpu)

    import accelerate

    monkeypatch.setattr(accelerate, "PartialState", State)
    set_cuda(monkeypatch, is_available=True)
    Device(RunConfig(cpu=True))
    Device(RunConfig(cpu=True), "cuda")
    Device(RunConfig(cpu=False), "cpu")
    assert asked == [True, False, True]
