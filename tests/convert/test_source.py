"""The folder of a checkpoint: tensors of every type, and a clear error for every kind of damage."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from plait.convert.source import Source
from plait.errors import ModelError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint"
    path.mkdir()
    return path


def write_header(path: Path, header: object, data: bytes = b"") -> None:
    content = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(content)) + content + data)


VALUES = np.array([[1.5, -2.25, 0.0], [3.0, 1e-3, 65504.0]], np.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_every_type_of_float_is_read_as_float32(folder: Path, dtype: torch.dtype, file: str) -> None:
    tensor = torch.from_numpy(VALUES).to(dtype)
    state = {"odd": torch.ones(1, dtype=torch.uint8), "weight": tensor, "ids": torch.arange(3)}
    if file.endswith(".bin"):
        torch.save(state, folder / file)
    else:
        save_torch(state, folder / file)
    tensors = Source.open(folder).tensors()
    assert tensors["weight"].dtype == np.float32
    np.testing.assert_array_equal(tensors["weight"], tensor.float().numpy())
    assert list(tensors) == ["weight"]
    ids = tensors.integers("ids")
    assert ids is not None
    assert ids.tolist() == [0, 1, 2]
    assert tensors.shape("weight") == (2, 3)


def test_a_sharded_checkpoint_is_read_by_its_index(folder: Path) -> None:
    save_file({"a": VALUES}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": VALUES + 1}, folder / "model-00002-of-00002.safetensors")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert set(Source.open(folder).tensors()) == {"a", "b"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {**names, "c": names["a"]}}))
    with pytest.raises(ModelError, match="names 1 tensors that its files do not have, such as 'c'"):
        Source.open(folder).tensors()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../secret"}}))
    with pytest.raises(ModelError, match="names files in other folders"):
        Source.open(folder).tensors()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (folder / names["b"]).unlink()
    with pytest.raises(ModelError, match=r"has no model-00002-of-00002\.safetensors"):
        Source.open(folder).tensors()


@pytest.mark.parametrize("n_bytes", [0, 4, 20, 200])
def test_a_truncated_safetensors_file(folder: Path, n_bytes: int) -> None:
    file = folder / "model.safetensors"
    save_file({"weight": np.ones((20, 20), np.float32)}, file)
    file.write_bytes(file.read_bytes()[:n_bytes])
    with pytest.raises(ModelError, match=r"model\.safetensors is truncated"):
        Source.open(folder).tensors()


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("[]", "its header is a list"),
        ("{'a'", "its header is not JSON"),
        ("[" * 100_000, "its header is not JSON"),
        ('{"a": 3}', "describes the tensor 'a' as 3"),
        ('{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}', "describes the tensor 'a'"),
        ('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}', "describes the tensor 'a'"),
        ('{"a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}', "of type 'F8_E4M3'"),
        ('{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', r"needs 8"),
        ('{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}', "ends at byte 36 of the data"),
    ],
)
def test_a_damaged_header(folder: Path, header: str, message: str) -> None:
    content = header.encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(content)) + content + bytes(8))
    with pytest.raises(ModelError, match=message):
        Source.open(folder).tensors()


def test_an_unaligned_tensor_is_read(folder: Path) -> None:
    entries = {
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
    }
    write_header(folder / "model.safetensors", entries, b"\0" + np.array([1, 2], np.float32).tobytes())
    assert Source.open(folder).tensors()["b"].tolist() == [1, 2]


class Payload:
    """An object whose pickle runs a command."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "colbert_linear.pt"])
def test_a_pickle_with_code_is_refused_and_not_run(folder: Path, file: str) -> None:
    marker = folder / "ran"
    torch.save({"weight": Payload(marker)}, folder / file)
    with pytest.raises(ModelError, match="plait runs no code of a checkpoint"):
        Source.open(folder).tensors_of(file)
    (folder / file).write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(ModelError, match=r"plait runs no code|not a file of torch"):
        Source.open(folder).tensors_of(file)
    assert not marker.exists()


@pytest.mark.parametrize("n_bytes", [0, 10, 300])
def test_a_truncated_file_of_torch(folder: Path, n_bytes: int) -> None:
    file = folder / "pytorch_model.bin"
    torch.save({"weight": torch.ones(20, 20)}, file)
    file.write_bytes(file.read_bytes()[:n_bytes])
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is"):
        Source.open(folder).tensors()


def test_a_file_of_torch_must_hold_a_state_dict(folder: Path) -> None:
    torch.save([torch.ones(2)], folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="holds a list"):
        Source.open(folder).tensors()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "must hold a JSON object; it holds a list"),
        (b"\xff\xfe", "cannot be read as UTF-8"),
        (b"[" * 200_000, "nested too deeply|is not JSON"),
    ],
)
def test_a_damaged_config(folder: Path, content: bytes, message: str) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        Source.open(folder).json("config.json")


def test_a_huge_config_is_not_read(folder: Path) -> None:
    (folder / "config.json").write_text("{}" + " " * 100)
    assert Source.open(folder).text("config.json", max_bytes=102)
    with pytest.raises(ModelError, match="has 102 bytes; plait reads at most 101"):
        Source.open(folder).text("config.json", max_bytes=101)


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (folder / "config.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(ModelError, match=r"is a link to .* outside of the checkpoint"):
        Source.open(folder).json("config.json")


def test_links_of_the_hub_cache_are_followed_to_its_blobs_only(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--model"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for blobs in (repository / "blobs", tmp_path / "hub" / "blobs" / "ab"):
        blobs.mkdir(parents=True)
        (blobs / "abc").write_text('{"a": 1}')
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    (snapshot / "shared.json").symlink_to("../../../blobs/ab/abc")
    (tmp_path / "secret.json").write_text("{}")
    (snapshot / "other.json").symlink_to(tmp_path / "secret.json")
    source = Source.open(snapshot)
    assert source.json("config.json") == source.json("shared.json") == {"a": 1}
    with pytest.raises(ModelError, match="outside of the checkpoint"):
        source.json("other.json")


def test_a_fifo_is_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "config.json")
    with pytest.raises(ModelError, match="is not a plain file"):
        Source.open(folder).json("config.json")


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist; name the folder of a checkpoint, or a model of the hub"):
        Source.open(tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="is a file"):
        Source.open(tmp_path / "file")


def test_a_folder_without_weights_says_what_it_has(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"has no weights: neither .*; it has config.json"):
        Source.open(folder).tensors()


def test_a_slow_tokenizer_is_converted(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "do_lower_case": true}')
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(Source.open(folder).tokenizer())
    assert tokenizer.encode("The cat").tokens == ["[CLS]", "the", "cat", "[SEP]"]


def test_no_tokenizer_at_all(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer: neither tokenizer.json nor vocab.txt"):
        Source.open(folder).tokenizer()
