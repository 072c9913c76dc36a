"""The layout of a folder, by its files and tensors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from convert.conftest import CHECKPOINTS, Copy
from plait.convert.detect import BY_NAME, choose_layout, detect, read_checkpoint
from plait.convert.source import Source
from plait.errors import ConfigError, ModelError

NAMES = sorted(path.stem for path in CHECKPOINTS.glob("*.json") if (CHECKPOINTS / path.stem).is_dir())


@pytest.mark.parametrize("name", NAMES)
def test_the_layout_of_every_checkpoint_is_detected(name: str) -> None:
    layout = json.loads((CHECKPOINTS / f"{name}.json").read_text(encoding="utf-8"))["layout"]
    detected = detect(Source.open(CHECKPOINTS / name))
    assert detected.layout == layout
    assert detected.evidence


def test_there_are_checkpoints_of_every_foreign_layout() -> None:
    layouts = {detect(Source.open(CHECKPOINTS / name)).layout for name in NAMES}
    assert {layout.name for layout in BY_NAME.values() if layout.read is not None} - layouts == set()


def test_stanford_colbert_without_its_architecture_is_known_by_its_projection(copy: Copy) -> None:
    folder = copy("stanford-without-metadata")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    assert detect(Source.open(folder)).evidence == "the tensor linear.weight"


def test_a_t5_without_its_projection_is_refused_if_it_is_xtr(copy: Copy) -> None:
    folder = copy("xtr")
    shutil.rmtree(folder / "2_Dense")
    source = Source.open(folder, "google/xtr-base-en")
    detected = detect(source)
    assert detected.layout == "xtr"
    with pytest.raises(ModelError, match="has no 2_Dense: the projection of XTR is missing, and plait makes no random"):
        read_checkpoint(source, detected)


def test_a_sentence_t5_is_not_xtr() -> None:
    assert detect(Source.open(CHECKPOINTS / "st-t5")).layout == "sentence-transformers"


def test_a_plain_encoder_gets_the_mean_and_a_warning(copy: Copy) -> None:
    folder = copy("st-bert-cls")
    for file in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (folder / file).unlink()
    source = Source.open(folder)
    detected = detect(source)
    assert detected.layout == "transformers"
    checkpoint = read_checkpoint(source, detected)
    assert checkpoint.heads.dense is not None
    assert checkpoint.heads.dense.poolings == ("mean",)
    assert "plait takes the mean" in checkpoint.warnings[0]


def test_a_masked_language_model_is_splade_only_by_its_name(copy: Copy) -> None:
    folder = copy("st-splade-bert")
    for file in ("modules.json", "config_sentence_transformers.json"):
        (folder / file).unlink()
    assert detect(Source.open(folder, "naver/splade-v3")).layout == "splade"
    assert detect(Source.open(folder, "google/bert")).layout == "transformers"


def test_a_folder_that_is_no_checkpoint_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(ModelError, match=r"no checkpoint that plait knows: it has notes\.txt"):
        detect(Source.open(tmp_path))


def test_an_adapter_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    save_file({"lora": np.ones(2, np.float32)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="merge it into its base model"):
        detect(Source.open(tmp_path))


def test_another_layout_can_be_named(copy: Copy) -> None:
    assert choose_layout(Source.open(copy("pylate-bert")), "sentence-transformers").layout == "sentence-transformers"


def test_a_layout_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"no layout 'colbert'; plait knows plait, plait-run, .*pylate"):
        choose_layout(Source.open(CHECKPOINTS / "pylate-bert"), "colbert")


@pytest.mark.parametrize(
    ("name", "layout", "message"),
    [
        ("st-bert-mean", "stanford-colbert", "has no linear.weight"),
        ("st-bert-mean", "pylate", "at least one Dense. Without its Dense, PyLate would make a random projection"),
        ("stanford", "bge-m3", "has no colbert_linear.pt"),
        ("stanford", "pylate", "has no modules.json"),
        ("pylate-bert", "xtr", "XTR is a T5 encoder"),
        ("st-bert-mean", "reranker", "has 2 outputs"),
        ("st-bert-mean", "splade", "of sparse models plait reads"),
        ("xtr", "onnx", "has no graph"),
        ("bge-m3", "constbert", "has no linear.weight"),
        ("st-bert-mean", "model2vec", "does not begin with StaticEmbedding"),
    ],
)
def test_files_of_another_layout_are_refused_with_the_layout_they_have(name: str, layout: str, message: str) -> None:
    source = Source.open(CHECKPOINTS / name)
    with pytest.raises(ModelError, match=message) as caught:
        read_checkpoint(source, choose_layout(source, layout))
    seen = detect(source)
    assert f"The folder was read as {layout}, as you said; by {seen.evidence} it is {seen.layout}" in str(caught.value)


def test_the_tensor_of_another_layout_is_not_lost(copy: Copy) -> None:
    """A ColBERT with a mixer is a ConstBERT, whatever its config says."""
    folder = copy("constbert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    assert "doc_project.weight" in load_file(folder / "model.safetensors")
    assert detect(Source.open(folder)).layout == "constbert"
