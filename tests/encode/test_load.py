"""Loading names what is wrong with a model folder, and imports model libraries late."""

from __future__ import annotations

import json
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
    change(folder, tokenizer={"file": "tokenizer.json", "sha256": "0", "bytes": 2})
    with pytest.raises(ModelError, match=r"tokenizer.json cannot be read"):
        load_model(folder)


def test_an_invalid_graph_is_refused(folder: Path) -> None:
    (folder / "model.int8.onnx").write_bytes(b"onnx")
    change(folder, precisions={"int8": {"file": "model.int8.onnx", "sha256": "0", "bytes": 4}})
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


def test_importing_the_encoder_imports_no_model_library() -> None:
    code = "import sys, plait.encode.load; sys.exit(bool({'onnxruntime', 'tokenizers', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
