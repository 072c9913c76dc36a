"""Every layout against its origin: tiny checkpoints that the libraries themselves saved are converted, and their
embeddings are compared with those that the libraries computed (`make_checkpoints`, `checkpoints/*.npz`)."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convert.parity import CHECKPOINTS, NAMES, Golden, Outputs, Parity, compare, golden_of, outputs_of, same_best
from plait.convert.convert import convert
from plait.convert.detect import LAYOUTS
from plait.errors import ModelError

MIN_COSINE = 0.9999
# Of single precision far more is expected than the cosine shows: another form of GELU would keep it.
MAX_DIFFERENCE = 1e-4
# Configs as the hub has them: the code of these checkpoints has names of its own.
NOMIC_NAMES = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
PUBLISHED_CONFIGS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "st-nomic-bert": (NOMIC_NAMES, {"rotary_emb_base": 1000, "activation_function": "swiglu"}),
    "st-gte": ({}, {"model_type": "new", "rope_theta": 160000, "position_embedding_type": "rope", "pack_qkv": True}),
}
# A setting that a reader could overlook, and another value of it: the comparison must find each.
OVERLOOKED = [
    ("st-bert-mean", "config.json", {"hidden_act": "gelu_new"}),
    ("st-bert-cls", "1_Pooling/config.json", {"pooling_mode": "mean"}),
    ("st-bert-matryoshka", "config_sentence_transformers.json", {"truncate_dim": None}),
    ("st5-bert", "sentence_bert_config.json", {"max_seq_length": 64}),
    ("st-modernbert", "config.json", {"local_attention": 12}),
    ("st-deberta-v3", "config.json", {"pos_att_type": ["c2p"]}),
    ("st-t5", "config.json", {"relative_attention_max_distance": 16}),
    ("st-qwen3", "config_sentence_transformers.json", {"prompts": {"query": "", "document": ""}}),
    ("st-splade-bert", "1_SpladePooling/config.json", {"pooling_strategy": "sum"}),
    ("st-cross-modernbert", "config.json", {"classifier_pooling": "cls"}),
    ("st-multi-markers", "2_MultiVectorMask/config.json", {"skiplist_words": []}),
    ("pylate-bert", "config_sentence_transformers.json", {"attend_to_expansion_tokens": True}),
    ("pylate-bert", "config_sentence_transformers.json", {"query_prefix": "[D] "}),
    ("stanford", "artifact.metadata", {"mask_punctuation": False}),
    ("onnx-colbert", "onnx_config.json", {"do_query_expansion": False}),
]


@functools.cache
def converted(name: str) -> tuple[Golden, Outputs]:
    """The golden outputs, and those of the converted model; converted once for all tests."""
    golden = golden_of(name)
    with tempfile.TemporaryDirectory() as scratch:
        return golden, outputs_of(golden, Path(scratch) / name)


def assert_equal_to_origin(golden: Golden, results: list[Parity]) -> None:
    assert [result.kind for result in results] == golden.kinds
    for result in results:
        assert result.same_counts, f"{result.kind}: other numbers of vectors, or other terms"
        assert result.cosine >= MIN_COSINE, result
        assert result.difference <= MAX_DIFFERENCE, result
        assert result.same_top == result.n_queries, result


@pytest.mark.parametrize("name", NAMES)
def test_a_converted_model_equals_its_origin(name: str) -> None:
    golden, outputs = converted(name)
    assert_equal_to_origin(golden, compare(golden, outputs))


@pytest.mark.parametrize("name", NAMES)
def test_the_layout_of_a_checkpoint_is_detected(name: str) -> None:
    golden, outputs = converted(name)
    assert outputs.layout == golden.about["layout"]


def test_every_golden_file_has_its_checkpoint_and_its_versions() -> None:
    folders = {path.name for path in CHECKPOINTS.iterdir() if path.is_dir()}
    assert folders == set(NAMES)
    for name in NAMES:
        about = golden_of(name).about
        assert about["versions"]["torch"]
        assert about["origin"] in about["versions"]
        assert about["difference to batches of one"] < MAX_DIFFERENCE


def test_every_layout_has_a_checkpoint() -> None:
    covered = {golden_of(name).about["layout"] for name in NAMES}
    assert {layout.name for layout in LAYOUTS if layout.read is not None} - covered == set()


def test_pooling_without_the_prompt_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CHECKPOINTS / "st-bert-prompts", tmp_path / "checkpoint"))
    pooling = {"embedding_dimension": 16, "pooling_mode": "mean", "include_prompt": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(ModelError, match="include_prompt is false"):
        convert(folder, tmp_path / "model", precision="fp32")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", PUBLISHED_CONFIGS)
def test_a_config_of_the_hub_gives_the_same_model(name: str, tmp_path: Path) -> None:
    golden = golden_of(name)
    folder = Path(shutil.copytree(golden.folder, tmp_path / name))
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    names, added = PUBLISHED_CONFIGS[name]
    hidden = {"rope_parameters", "head_dim"} | ({"hidden_act"} if names else set())
    config = {names.get(key, key): value for key, value in config.items() if key not in hidden} | added
    (folder / "config.json").write_text(json.dumps(config))
    assert_equal_to_origin(golden, compare(golden, outputs_of(golden, tmp_path / "model", folder=folder)))


@pytest.mark.parametrize(("name", "file", "change"), OVERLOOKED)
def test_the_comparison_finds_an_overlooked_setting(
    name: str, file: str, change: dict[str, Any], tmp_path: Path
) -> None:
    golden = golden_of(name)
    folder = Path(shutil.copytree(golden.folder, tmp_path / name))
    settings = json.loads((folder / file).read_text())
    assert {key: settings.get(key) for key in change} != change
    (folder / file).write_text(json.dumps(settings | change))
    try:
        results = compare(golden, outputs_of(golden, tmp_path / "model", folder=folder))
    except AssertionError:  # vectors of another shape
        return
    with pytest.raises(AssertionError):
        assert_equal_to_origin(golden, results)


def test_the_comparison_finds_a_wrong_vector() -> None:
    golden, outputs = converted("st-bert-mean")
    assert outputs.queries is not None
    assert outputs.queries.dense is not None
    dense = outputs.queries.dense.copy()
    outputs.queries.dense[3] = dense[4]
    try:
        result = compare(golden, outputs)[0]
    finally:
        outputs.queries.dense[:] = dense
    assert result.cosine < MIN_COSINE
    assert result.same_top < result.n_queries


def test_equal_scores_may_change_places_but_others_may_not() -> None:
    expected = np.linspace(1, 0, 20)
    assert same_best(expected, expected)
    swapped = expected.copy()
    swapped[[9, 10]] = swapped[[10, 9]]
    assert not same_best(expected, swapped)
    expected[10] = expected[9] - 1e-7
    assert same_best(expected, swapped)
