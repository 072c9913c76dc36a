"""From a checkpoint to a model folder: what is written, what is compared, and that a failure leaves nothing."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import plait
from convert.conftest import CHECKPOINTS, Copy
from encode.conftest import tiny_tokenizer
from plait.convert import convert as module
from plait.convert.checkpoint import Overrides
from plait.convert.convert import convert, parse_precisions
from plait.convert.detect import read_checkpoint
from plait.encode.load import load_model, verify_model
from plait.encode.model_card import CARD_NAME, DocumentInput, ModelCard
from plait.errors import ConfigError, ModelError
from plait.rerank.cross_encoder import load_cross
from plait.train import checkpoint
from train.tiny import tiny_model


def left(folder: Path) -> list[str]:
    """The files and folders beside the target."""
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def test_a_model_folder_is_written_with_every_precision(tmp_path: Path) -> None:
    said: list[str] = []
    made = convert(CHECKPOINTS / "stanford", tmp_path / "model", precision="all", on_stage=said.append)
    assert left(tmp_path) == ["model"]
    assert list(made.card.precisions) == ["int8", "fp16", "fp32"]
    assert sorted(verify_model(tmp_path / "model")) == [
        "model.fp16.onnx",
        "model.int8.onnx",
        "model.onnx",
        "tokenizer.json",
    ]
    assert said[0] == "stanford: layout stanford-colbert, by config.json: architectures"
    assert any("query marker: [unused0] (artifact.metadata: query_token_id)" in line for line in said)
    assert made.parity["fp32"].against == "the source model"
    assert made.parity["fp32"].differences["multi"] < 1e-5
    assert made.parity["fp16"].cosines["multi"] > 0.9999
    assert made.parity["int8"].cosines["multi"] > 0.99
    assert "| query marker | [unused0] |" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_only_the_precisions_that_were_asked_for_are_kept(tmp_path: Path) -> None:
    convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model")
    assert left(tmp_path / "model") == ["README.md", "model.int8.onnx", "plait.json", "tokenizer.json"]


def test_the_same_checkpoint_gives_the_same_files(tmp_path: Path) -> None:
    first = convert(CHECKPOINTS / "st-bert-mean", tmp_path / "one", name="same")
    second = convert(CHECKPOINTS / "st-bert-mean", tmp_path / "two", name="same")
    assert first.card == second.card


def test_every_precision_has_the_same_fingerprint(tmp_path: Path) -> None:
    int8 = convert(CHECKPOINTS / "st-bert-mean", tmp_path / "int8")
    fp32 = convert(CHECKPOINTS / "st-bert-mean", tmp_path / "fp32", precision="fp32")
    assert int8.card.fingerprint == fp32.card.fingerprint


def test_a_converted_model_is_indexed_and_searched(tmp_path: Path) -> None:
    convert(CHECKPOINTS / "bge-m3", tmp_path / "model")
    with plait.open(tmp_path / "index", model=tmp_path / "model", create=True) as index:
        index.add([{"id": "a", "text": "water boils at a hundred degrees"}, {"id": "b", "text": "the price of copper"}])
        assert index.search("water boils at a hundred degrees", k=1)[0].id == "a"


def test_a_reranker_is_converted(tmp_path: Path) -> None:
    made = convert(CHECKPOINTS / "st-cross-bert", tmp_path / "model", precision="both")
    assert made.parity["fp32"].differences["score"] < 1e-4
    assert load_cross(tmp_path / "model").score([("a", "b")]).shape == (1,)


def test_verify_compares_rankings_of_real_text(tmp_path: Path) -> None:
    made = convert(CHECKPOINTS / "st-bert-cls", tmp_path / "model", precision="both", verify=True)
    fp32, int8 = (made.parity[one].agreement["dense"] for one in ("fp32", "int8"))
    assert fp32.lowest_cosine > 0.99999
    assert fp32.top10 == 1.0
    assert 0.5 < int8.top10 <= 1.0
    assert int8.lowest_cosine < fp32.lowest_cosine


def test_settings_of_the_user_reach_the_card(tmp_path: Path) -> None:
    overrides = Overrides(query_prompt="query: ", document_length=32, query_length=16)
    made = convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model", overrides=overrides, dims=8, name="mine")
    card = made.card
    assert isinstance(card, ModelCard)
    assert (card.name, card.query.prefix, card.query.length, card.document.length) == ("mine", "query: ", 16, 32)
    assert card.spec.dense == 8
    encoded = load_model(tmp_path / "model").encode_queries(["a"]).dense
    assert encoded is not None
    assert encoded.shape == (1, 8)


def test_mcls_is_converted(tmp_path: Path) -> None:
    made = convert(CHECKPOINTS / "bge-m3", tmp_path / "model", overrides=Overrides(mcls=8), precision="fp32")
    assert isinstance(made.card, ModelCard)
    assert made.card.document.mcls == 8
    assert made.parity["fp32"].differences["dense"] < 1e-5


def test_a_graph_of_fastembed_is_wrapped(tmp_path: Path) -> None:
    made = convert(CHECKPOINTS / "fastembed-bge-tiny", tmp_path / "model", precision="both")
    assert made.parity["fp32"].differences["dense"] < 1e-5
    assert set(made.card.precisions) == {"fp32", "int8"}
    assert left(tmp_path / "model") == ["README.md", "model.int8.onnx", "model.onnx", "plait.json", "tokenizer.json"]


def test_a_run_of_plait_is_exported(tmp_path: Path) -> None:
    document = DocumentInput(length=32, prefix="", overlap=4)
    checkpoint.save(tiny_model("bert", document=document), tiny_tokenizer(), tmp_path / "run")
    made = convert(tmp_path / "run", tmp_path / "model", precision="fp32")
    assert made.layout == "plait-run"
    assert load_model(tmp_path / "model").spec.dense == 32


def test_a_model_folder_is_copied_after_its_hashes_were_compared(tmp_path: Path) -> None:
    convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model")
    made = convert(tmp_path / "model", tmp_path / "copy")
    assert made.layout == "plait"
    assert verify_model(tmp_path / "copy")
    graph = tmp_path / "model" / "model.int8.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"\0")
    with pytest.raises(ModelError, match="sha256"):
        convert(tmp_path / "model", tmp_path / "other")
    assert left(tmp_path) == ["copy", "model"]


# -- wrong input: a clear error, and nothing is left


def break_head(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in tensors.items() if "linear" not in name}, folder / "model.safetensors")


def break_layer(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: value for name, value in tensors.items() if "layer.1.output" not in name}, folder / "model.safetensors"
    )


def truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


class Payload:
    """An object whose pickle runs a command."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/plait-ran-a-pickle",)


def add_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Payload()}, folder / "pytorch_model.bin")


def break_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_head, "the projection of ColBERT is missing"),
        (break_layer, "layer.1.output"),
        (truncate, "model.safetensors is truncated"),
        (add_code, "plait runs no code of a checkpoint"),
        (break_tokenizer, "the tokenizer of .* cannot be read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_damaged_checkpoint_leaves_nothing(copy: Copy, tmp_path: Path, damage: Any, message: str) -> None:
    folder = copy("stanford")
    damage(folder)
    with pytest.raises(ModelError, match=message):
        convert(folder, tmp_path / "made" / "deep" / "model")
    assert left(tmp_path) == ["source"]
    assert not Path("/tmp/plait-ran-a-pickle").exists()


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists; name another folder"):
        convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model")
    with pytest.raises(ConfigError, match=r"exists and has no plait\.json; --force replaces only model folders"):
        convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model", force=True)
    assert left(tmp_path / "model") == ["notes.txt"]


def test_force_replaces_a_model_folder_whole(tmp_path: Path) -> None:
    convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model", precision="both")
    with pytest.raises(ConfigError, match="replace it with --force"):
        convert(CHECKPOINTS / "st-bert-cls", tmp_path / "model")
    convert(CHECKPOINTS / "st-bert-cls", tmp_path / "model", force=True)
    assert left(tmp_path / "model") == ["README.md", "model.int8.onnx", "plait.json", "tokenizer.json"]
    assert left(tmp_path) == ["model"]


def test_the_draft_of_a_killed_process_is_no_model(tmp_path: Path) -> None:
    draft = tmp_path / f"model.new-{os.getpid()}"
    draft.mkdir()
    (draft / "model.onnx").write_bytes(b"half")
    convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model")
    assert left(tmp_path) == ["model"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("plait.graphs.build.write_graph", fail)
    with pytest.raises(ModelError, match=r"the disk is full: .*model was not written; make room"):
        convert(CHECKPOINTS / "st-bert-mean", tmp_path / "a" / "model")
    assert left(tmp_path) == []


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "source_session", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model")
    assert left(tmp_path) == []


def test_a_graph_that_differs_from_the_source_model_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_checkpoint

    def changed(*args: Any) -> Any:
        made = read(*args)
        tensors = dict(made.tensors)
        name = "encoder.layer.0.attention.self.query.weight"
        tensors[name] = tensors[name] + np.float32(0.01)
        return replace(made, tensors=tensors)

    monkeypatch.setattr(module, "read_checkpoint", changed)
    with pytest.raises(ModelError, match="the dense vectors of the graph differ from torch's"):
        convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model")
    assert left(tmp_path) == []


def test_a_reranker_that_differs_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_checkpoint

    def changed(*args: Any) -> Any:
        made = read(*args)
        tensors = dict(made.tensors)
        name = "encoder.layer.0.attention.self.query.weight"
        tensors[name] = tensors[name] + np.float32(0.05)
        return replace(made, tensors=tensors)

    monkeypatch.setattr(module, "read_checkpoint", changed)
    with pytest.raises(ModelError, match="the scores of the graph differ from those of the source model"):
        convert(CHECKPOINTS / "st-cross-bert", tmp_path / "model")
    assert left(tmp_path) == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("plait.convert.packages.find_spec", lambda name: None if name == "onnx" else object())
    with pytest.raises(
        ConfigError, match=r"converting a model needs onnx; install with: pip install 'plait\[convert\]'"
    ):
        convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model")


def test_precisions() -> None:
    assert parse_precisions("both") == ("int8", "fp32")
    assert parse_precisions("fp16, int8,fp16") == ("fp16", "int8")
    with pytest.raises(ConfigError, match="there is no precision 'int4'; choose int8, fp16, fp32, both, all"):
        parse_precisions("int4")


def test_a_folder_has_no_revision(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder, which has no revision main"):
        convert(CHECKPOINTS / "st-bert-mean", tmp_path / "model", revision="main")


def test_the_card_is_read_back(tmp_path: Path) -> None:
    made = convert(CHECKPOINTS / "st-splade-static-query", tmp_path / "model")
    content = json.loads((tmp_path / "model" / CARD_NAME).read_text(encoding="utf-8"))
    assert content["embeddings"]["sparse"]["query"] == "static"
    assert load_model(tmp_path / "model").fingerprint == made.card.fingerprint
