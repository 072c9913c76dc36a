"""The device of a model: onnxruntime's provider, or a clear error. There is no graphics card in tests; a fake stands in
for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import plait
from plait.encode import load
from plait.encode.load import check_device, choose_precision, load_model, open_session, shared_encoder
from plait.encode.model_card import GraphRecord, read_card
from plait.errors import ConfigError
from plait.rerank.cross_encoder import load_cross, shared_cross


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("open_model", [load_model, shared_encoder, load_cross, shared_cross])
def test_cuda_without_its_package_is_refused_with_the_package(open_model: Any) -> None:
    with pytest.raises(ConfigError, match=r"device is 'cuda'.*CPUExecutionProvider only; .*onnxruntime-gpu"):
        open_model(device="cuda")


@pytest.mark.usefixtures("no_gpu")
def test_an_index_refuses_cuda_before_it_is_created(tmp_path: Path) -> None:
    for opened in (plait.open, plait.Index.create):
        options: dict[str, Any] = {"create": True} if opened is plait.open else {}
        with pytest.raises(ConfigError, match="onnxruntime-gpu"):
            opened(tmp_path / "index", device="cuda", **options)
        assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("device", ["gpu", "", 0, "cuda:0:1"])
def test_an_unknown_device_is_refused(device: Any) -> None:
    with pytest.raises(ConfigError, match="choose one of cpu, cuda"):
        check_device(device)


def test_the_processor_is_the_default_and_may_be_named(tmp_path: Path) -> None:
    assert shared_encoder(device="cpu") is shared_encoder() is shared_encoder(device=None)
    with plait.open(tmp_path / "index", create=True, device="cpu") as index:
        index.add([plait.Document("1", "text")])
        assert [hit.id for hit in index.search("text")] == ["1"]


class FakeSession:
    """What onnxruntime gives when the libraries of a graphics card cannot be loaded: it goes on with the processor."""

    def __init__(self, *_: Any, providers: list[str]) -> None:
        self.asked = providers

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]


def test_a_provider_that_does_not_start_is_an_error_not_a_slow_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", FakeSession)
    with pytest.raises(ConfigError, match=r"could not start it and runs on CPUExecutionProvider; .*CUDA and cuDNN"):
        open_session(Path("model.onnx"), 1, device="cuda")


def test_a_provider_that_starts_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Working(FakeSession):
        def get_providers(self) -> list[str]:
            return self.asked

    monkeypatch.setattr(onnxruntime, "InferenceSession", Working)
    session = open_session(Path("model.onnx"), 1, device="cuda")
    assert session.asked == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert open_session(Path("model.onnx"), 1).asked == ["CPUExecutionProvider"]


def test_the_default_precision_is_that_of_the_device() -> None:
    records = {name: GraphRecord(name, "00", 1) for name in ("int8", "fp32", "fp16")}
    chosen = [choose_precision(records, "m", Path("m"), None, device).file for device in (None, "cpu", "cuda")]
    assert chosen == ["int8", "int8", "fp16"]
    del records["fp16"]
    assert choose_precision(records, "m", Path("m"), None, "cuda").file == "fp32"
    assert choose_precision(records, "m", Path("m"), "int8", "cuda").file == "int8"


def test_indexes_on_two_devices_do_not_share_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str | None] = []

    class Encoder:
        pass

    def fake(model: Any = None, *, device: str | None = None, **_: Any) -> Any:
        del model
        loaded.append(device)
        return Encoder()

    monkeypatch.setattr(load, "load_model", fake)
    monkeypatch.setattr(load, "check_device", lambda _: None)
    on_cpu, on_cuda = shared_encoder(n_threads=77), shared_encoder(n_threads=77, device="cuda")
    assert on_cpu is not on_cuda
    assert loaded == [None, "cuda"]
    assert shared_encoder(n_threads=77, device="cuda") is on_cuda


def test_each_optimisation_gives_the_same_vectors() -> None:
    folder = load.find_model()
    graph = folder / read_card(folder).precisions["int8"].file
    feed = {"input_ids": np.array([[101, 2054, 102]]), "attention_mask": np.ones((1, 3), np.int64)}
    results = [open_session(graph, 1, optimise=name).run(["dense"], feed)[0] for name in ("none", "basic", "all")]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], atol=0.02)
