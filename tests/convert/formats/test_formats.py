"""Checkpoints that plait writes for other libraries: converted back they give the embeddings of the origin, and what a
format cannot hold is refused. `in_origin.py` checks the same folders with the libraries themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from convert.formats.in_origin import CASES
from convert.parity import CHECKPOINTS, Golden, compare, golden_of, outputs_of
from convert.started import saved_model
from plait.convert.checkpoint import Checkpoint
from plait.convert.formats import pylate
from plait.convert.formats.common import special_tokens, truncated
from plait.convert.formats.export import FORMATS, RECORD, export_checkpoint
from plait.convert.start import read_start
from plait.errors import ConfigError, ModelError
from plait.graphs.heads import DenseLayer, Linear
from plait.train.build import build
from plait.train.recipe import read_recipe

ROUND_TRIPS = [
    ("stanford", "stanford"),
    ("stanford", "sentence-transformers"),
    ("pylate-bert", "pylate"),
    ("pylate-bert", "stanford"),
    ("pylate-modernbert-residual", "pylate"),
    ("pylate-without-prefix", "pylate"),
    ("pylate-xlm-roberta", "pylate"),
    ("xtr", "sentence-transformers"),
    ("bge-m3-narrow", "flagembedding"),
    ("st-bert-prompts", "sentence-transformers"),
    ("st-bert-cls-mean", "sentence-transformers"),
    ("st-bert-dense", "sentence-transformers"),
    ("st-bert-matryoshka", "sentence-transformers"),
    ("st-multi-minimum", "sentence-transformers"),
    ("st-cross-bert-sigmoid", "sentence-transformers"),
    ("st-cross-modernbert", "sentence-transformers"),
    ("st-cross-xlm-roberta", "flagembedding"),
]
RECIPES = CHECKPOINTS.parents[2] / "recipes"
EXPANSION = "{token = '[MASK]', length = 24, attended = false}"


def saved(name: str, tmp_path: Path, more: str = "") -> Path:
    saved_model(CHECKPOINTS / name, tmp_path / "saved", more)
    return tmp_path / "saved"


def assert_equal(golden: Golden, exported: Path, to: Path) -> None:
    outputs = outputs_of(golden, to, folder=exported)
    results = compare(golden, outputs)
    assert [result.kind for result in results] == golden.kinds
    for result in results:
        assert result.same_counts, result
        assert result.cosine >= 0.9999, result
        assert result.difference <= 1e-4, result


@pytest.mark.parametrize(("name", "form"), ROUND_TRIPS)
def test_an_exported_checkpoint_converts_back_to_the_same_embeddings(name: str, form: str, tmp_path: Path) -> None:
    made = export_checkpoint(saved(name, tmp_path), tmp_path / name, form)
    assert made.differences
    assert max(made.differences.values()) < 1e-4
    assert_equal(golden_of(name), made.folder, tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["model", name, "saved", "saved-run"])


def test_kinds_that_a_format_cannot_hold_are_refused_or_dropped(tmp_path: Path) -> None:
    folder = saved("bge-m3", tmp_path)
    said = (
        "the model has dense, sparse and multi vectors, and the format pylate holds multi vectors; choose --format "
        "flagembedding or plait, or leave kinds out with --drop dense --drop sparse"
    )
    with pytest.raises(ConfigError, match=said):
        export_checkpoint(folder, tmp_path / "out", "pylate")
    with pytest.raises(ConfigError, match="drops vectors of special tokens, and PyLate keeps them"):
        export_checkpoint(folder, tmp_path / "out", "pylate", drop=("dense", "sparse"))
    assert not (tmp_path / "out").exists()
    made = export_checkpoint(folder, tmp_path / "out", "sentence-transformers", drop=("sparse", "multi"))
    assert list(made.differences) == ["dense"]


def test_sparse_vectors_by_token_have_no_module_in_sentence_transformers(tmp_path: Path) -> None:
    folder = saved("bge-m3", tmp_path)
    with pytest.raises(ConfigError, match=r"the model has sparse vectors.*choose --format plait$"):
        export_checkpoint(folder, tmp_path / "out", "sentence-transformers", drop=("dense", "multi"))


@pytest.mark.parametrize(
    ("name", "form", "more", "said"),
    [
        ("stanford", "flagembedding", "", "the model has multi vectors.*choose --format sentence-transformers or"),
        ("constbert", "pylate", "", "PyLate has no such mixer"),
        ("constbert", "sentence-transformers", "", "a fixed number of vectors, which MultiVectorEncoder cannot hold"),
        ("st-multi-minimum", "pylate", "", "the skip list is for queries too"),
        ("st-multi-markers", "pylate", "", "PyLate has no prompts for queries and documents"),
        ("pylate-modernbert-residual", "stanford", "", "the backbone is a modernbert"),
        ("pylate-bert-attended", "stanford", "", "has one linear map without a bias"),
        ("pylate-without-prefix", "stanford", "", "has one linear map without a bias"),
        ("stanford", "stanford", "multi = {skip = ['.', 'the']}\n", "skips punctuation or nothing"),
        ("stanford", "stanford", f"query = {{length = 30, expansion = {EXPANSION}}}\n", "expands every query to its"),
        ("stanford", "pylate", "query = {prefix = 'find: '}\n", "a query has the prefix 'find: '"),
        ("bge-m3", "flagembedding", "dense = {pooling = 'mean'}\n", "is the normalised state of the first token"),
        ("bge-m3", "flagembedding", "multi = {first_row = true}\n", "a vector for each token but the first"),
        ("bge-m3", "flagembedding", "query = {prefix = 'query: '}\n", "BGE-M3 has no prefix"),
        ("bge-m3", "flagembedding", "sparse = {zero_ids = [0]}\n", "the weight 0 to special tokens alone"),
        ("st-cross-bert", "pylate", "", "the model has the score of a cross-encoder"),
        ("st-cross-bert", "flagembedding", "document_prefix = '[CLS]'\n", "a sequence classifier does not know"),
    ],
)  # fmt: skip
def test_what_a_format_cannot_hold_is_refused(name: str, form: str, more: str, said: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path, more)
    with pytest.raises(ConfigError, match=said):
        export_checkpoint(folder, tmp_path / "out", form)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved", "saved-run"]


def test_a_token_adapter_is_refused(tmp_path: Path) -> None:
    folder = saved("stanford", tmp_path, "token_adapter = {dim = 8}\n")
    with pytest.raises(ConfigError, match="token adapter, which is plait's own"):
        export_checkpoint(folder, tmp_path / "out", "pylate")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"form": "onnx"}, "there is no format 'onnx'; choose one of plait, sentence-transformers, pylate, stanford"),
        ({"drop": ("scores",)}, "'scores' is no kind of embedding"),
        ({"drop": ("dense",)}, "has no dense vectors to drop; it has multi"),
        ({"drop": ("multi",)}, "all kinds of embeddings are dropped"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"weights": "last"}, "weights is 'last'"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, object], said: str, tmp_path: Path) -> None:
    folder = saved("stanford", tmp_path)
    with pytest.raises(ConfigError, match=said):
        export_checkpoint(folder, tmp_path / "out", **{"form": "pylate", **options})  # type: ignore[arg-type]


def test_only_a_folder_that_plait_exported_is_replaced(tmp_path: Path) -> None:
    folder, target = saved("stanford", tmp_path), tmp_path / "out"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"out exists; name another folder$"):
        export_checkpoint(folder, target, "pylate")
    with pytest.raises(ConfigError, match=f"has no {RECORD}"):
        export_checkpoint(folder, target, "pylate", force=True)
    assert (target / "notes.txt").read_text() == "mine"
    export_checkpoint(folder, tmp_path / "new", "pylate", licence="MIT")
    with pytest.raises(ConfigError, match="or replace it with --force"):
        export_checkpoint(folder, tmp_path / "new", "stanford")
    assert export_checkpoint(folder, tmp_path / "new", "stanford", force=True).form == "stanford"
    assert not (tmp_path / "new" / "1_Dense").exists()


def test_a_folder_that_does_not_read_back_alike_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_wrong(checkpoint: Checkpoint, folder: Path) -> list[str]:
        tensors = {name: value + np.float32(0.1) for name, value in checkpoint.tensors.items()}
        return write(replace(checkpoint, tensors=tensors), folder)

    write = pylate.write
    monkeypatch.setattr(pylate, "write", write_wrong)
    folder = saved("stanford", tmp_path)
    with pytest.raises(ModelError, match="multi vectors of the graph differ from torch's"):
        export_checkpoint(folder, tmp_path / "out", "pylate")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved", "saved-run"]


def test_the_files_are_those_that_every_version_of_transformers_reads(tmp_path: Path) -> None:
    made = export_checkpoint(saved("stanford", tmp_path), tmp_path / "out", "stanford", licence="mit")
    settings = json.loads((made.folder / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"  # transformers 4 knows no TokenizersBackend
    assert settings["mask_token"] == "[MASK]"
    assert settings["pad_token"] == "[PAD]"
    config = json.loads((made.folder / "config.json").read_text())
    assert config["architectures"] == ["HF_ColBERT"]
    assert "transformers_version" not in config
    names = load_file(made.folder / "model.safetensors")
    assert names["linear.weight"].shape == (8, 16)
    assert "bert.embeddings.word_embeddings.weight" in names
    page = (made.folder / "README.md").read_text()
    assert 'license: "mit"' in page
    assert "Checkpoint('out', ColBERTConfig())" in page
    assert read_start(made.folder).licence == "mit"


def test_a_t5_is_written_once_although_its_embeddings_have_two_names(tmp_path: Path) -> None:
    made = export_checkpoint(saved("xtr", tmp_path), tmp_path / "out", "pylate")
    assert made.notes == ("PyLate removes the whitespace around every text",)
    names = load_file(made.folder / "model.safetensors")
    assert "shared.weight" in names
    assert "encoder.embed_tokens.weight" not in names


def test_roles_of_special_tokens_are_those_of_the_checkpoint() -> None:
    for name in ("bge-m3", "st-bert-mean", "st-modernbert", "st-t5"):
        start = read_start(CHECKPOINTS / name)
        given = json.loads((CHECKPOINTS / name / "tokenizer_config.json").read_text())
        roles = special_tokens(start, Tokenizer.from_str(start.tokenizer))
        assert {role: given.get(role) for role in roles} == roles, name


def test_a_projection_is_truncated_where_a_format_cannot_keep_a_part() -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    layer = DenseLayer(Linear(weight, np.arange(4, dtype=np.float32)), residual=Linear(weight))
    (cut,) = truncated((layer,), 2, 3)
    assert isinstance(cut, DenseLayer)
    np.testing.assert_array_equal(cut.linear.weight, weight[:, :2])
    assert cut.linear.bias is not None
    assert len(cut.linear.bias) == 2
    assert cut.residual is not None
    assert cut.residual.weight.shape == (3, 2)
    assert truncated((layer,), None, 3) == (layer,)
    with pytest.raises(ConfigError, match="cannot be truncated to 2 dimensions"):
        truncated((DenseLayer(Linear(np.eye(3, dtype=np.float32)), adds_input=True),), 2, 3)


def test_every_format_is_checked_with_its_library() -> None:
    assert set(CASES) == set(FORMATS)


def test_a_recipe_of_plait_with_markers_as_prefixes_becomes_a_colbert(tmp_path: Path) -> None:
    changes = [
        "model.random={model_type = 'bert', hidden_size = 16, num_hidden_layers = 1, num_attention_heads = 2}",
        "model.multi={dim = 8}",
        f"model.query={{length = 24, prefix = '[unused0] ', expansion = {EXPANSION}}}",
        "model.document={length = 40, prefix = '[unused1] ', overlap = 8}",
        "loss={name = 'contrastive', kind = 'multi'}",
        "mining.mode='multi'",
    ]
    recipe = read_recipe(RECIPES / "tiny.toml", changes)
    model = {key: value for key, value in recipe.model.items() if key not in ("dense", "sparse")}
    build(replace(recipe, model=model), tmp_path).save(tmp_path / "saved")
    made = export_checkpoint(tmp_path / "saved", tmp_path / "out", "stanford")
    assert made.differences["multi"] < 1e-4
    metadata = json.loads((made.folder / "artifact.metadata").read_text())
    assert (metadata["query_token_id"], metadata["doc_token_id"]) == ("[unused0]", "[unused1]")
    assert metadata["mask_punctuation"] is False
    assert export_checkpoint(tmp_path / "saved", tmp_path / "pylate", "pylate").differences["multi"] < 1e-4
