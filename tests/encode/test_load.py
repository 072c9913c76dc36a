"""Loading names what is wrong with a model folder, and imports model libraries late."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plait.encode.load import BUNDLED, DEFAULT_MODEL, bundled_models, find_model, load_model, verify_model
from plait.errors import ConfigError, ModelError

FILES = ("plait.json", "tokenizer.json", "model.int8.onnx")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the bundled model that a test may damage."""
    for name in FILES:
        shutil.copy(BUNDLED / DEFAULT_MODEL / name, tmp_path / name)
    return tmp_path


def change(folder: Path, **sections: Any) -> None:
    card = json.loads((folder / "plait.json").read_text())
    (folder / "plait.json").write_text(json.dumps({**card, **sections}))


def described(file: Path) -> dict[str, Any]:
    """A file as the card describes it."""
    content = file.read_bytes()
    return {"file": file.name, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def test_the_default_model_is_bundled() -> None:
    assert DEFAULT_MODEL in bundled_models()
    assert find_model(None) == find_model(DEFAULT_MODEL) == BUNDLED / DEFAULT_MODEL


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match=f"bundled and installed models are .*{DEFAULT_MODEL}"):
        load_model("no-such-model")


def test_an_installed_model_is_found_by_its_name() -> None:
    assert (find_model("plait-multilingual") / "plait.json").is_file()
    assert "plait-multilingual" not in bundled_models()


def test_a_model_that_is_not_installed_is_refused_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.encode.load.installed_models", dict)
    with pytest.raises(
        ModelError, match=r"pip install plait-multilingual, or .* pip install ./models/plait-multilingual"
    ):
        find_model("plait-multilingual")


def test_a_folder_without_a_card_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a model folder"):
        load_model(tmp_path)


def test_a_missing_precision_is_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match=r"no precision 'fp32'; it has int8.*docs/models.md"):
        load_model(precision="fp32")


def test_a_truncated_graph_is_refused_by_its_size(folder: Path) -> None:
    path = folder / "model.int8.onnx"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"has 1000 bytes, but plait.json records"):
        load_model(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer.json is missing"):
        load_model(folder)


def test_an_invalid_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    change(folder, tokenizer=described(folder / "tokenizer.json"))
    with pytest.raises(ModelError, match=r"tokenizer.json cannot be read"):
        load_model(folder)


def test_an_invalid_graph_is_refused(folder: Path) -> None:
    (folder / "model.int8.onnx").write_bytes(b"onnx")
    change(folder, precisions={"int8": described(folder / "model.int8.onnx")})
    with pytest.raises(ModelError, match="cannot be run"):
        load_model(folder)


def test_a_graph_with_other_dimensions_than_its_card_is_refused(folder: Path) -> None:
    card = json.loads((folder / "plait.json").read_text())
    card["embeddings"]["multi"]["dim"] += 8
    change(folder, embeddings=card["embeddings"])
    with pytest.raises(ModelError, match="should have an output 'multi'"):
        load_model(folder)


def test_zero_threads_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_threads is 0"):
        load_model(n_threads=0)


def test_verify_finds_a_changed_byte(folder: Path) -> None:
    assert verify_model(folder) == ["tokenizer.json", "model.int8.onnx"]
    path = folder / "model.int8.onnx"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match="has sha256"):
        verify_model(folder)


def test_loading_refuses_a_changed_byte_and_notices_a_file_that_was_replaced(folder: Path) -> None:
    load_model(folder)
    for name in ("tokenizer.json", "model.int8.onnx"):
        content = (folder / name).read_bytes()
        changed = bytearray(content)
        changed[len(content) // 2] ^= 1
        (folder / name).write_bytes(changed)
        with pytest.raises(ModelError, match=f"{name} has sha256"):
            load_model(folder)
        (folder / name).write_bytes(content)
    load_model(folder)


def test_a_bundled_model_is_compared_with_its_card_while_it_loads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads((folder / "plait.json").read_text())["precisions"]["int8"]
    change(folder, precisions={"int8": {**record, "sha256": "0" * 64}})
    monkeypatch.setattr("plait.encode.load.comes_with_plait", lambda _: True)
    with pytest.raises(ModelError, match=r"model.int8.onnx has sha256"):
        load_model(folder)


def external_graph(location: bytes) -> bytes:
    """A graph with one tensor whose bytes are in another file."""

    def message(*fields: tuple[int, bytes]) -> bytes:
        return b"".join(bytes([number << 3 | 2, len(content)]) + content for number, content in fields)

    entry = message((1, b"location"), (2, location))
    tensor = message((8, b"weights"), (13, entry)) + bytes([14 << 3, 1])
    return message((7, message((5, tensor))))


def test_a_graph_with_parts_in_other_files_is_refused(folder: Path) -> None:
    (folder / "model.int8.onnx").write_bytes(external_graph(b"../../etc/passwd"))
    change(folder, precisions={"int8": described(folder / "model.int8.onnx")})
    with pytest.raises(ModelError, match="external data"):
        load_model(folder)


def test_a_graph_that_only_has_the_word_location_is_not_refused_for_it(folder: Path) -> None:
    graph = folder / "model.int8.onnx"
    # Field 1 of a node is the name of an input; field 8 of a model is its domain.
    graph.write_bytes(graph.read_bytes() + bytes([4 << 3 | 2, 10]) + b"a location")
    change(folder, precisions={"int8": described(graph)})
    load_model(folder)


def test_a_fifo_in_a_model_folder_is_refused_at_once(folder: Path) -> None:
    for name, what in (("model.int8.onnx", "not a plain file"), ("plait.json", "not a plain file")):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(ModelError, match=what):
            load_model(folder)


def test_a_card_that_is_nested_too_deeply_is_refused(folder: Path) -> None:
    (folder / "plait.json").write_text("[" * 100_000)
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(folder)


def test_importing_the_encoder_imports_no_model_library() -> None:
    code = "import sys, plait.encode.load; sys.exit(bool({'onnxruntime', 'tokenizers', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
