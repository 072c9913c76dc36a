"""What the readers of the layouts read from where. Vectors are compared with the origin libraries in test_parity.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from convert.conftest import CHECKPOINTS, Copy
from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.detect import detect, read_checkpoint
from plait.convert.layouts.common import front_matter
from plait.convert.source import Source
from plait.encode.model_card import Expansion
from plait.errors import ConfigError, ModelError
from plait.graphs.heads import SparseTokens, SparseVocabulary


def read(folder: Path, name: str = "", **overrides: Any) -> Checkpoint:
    source = Source.open(folder, name)
    return read_checkpoint(source, detect(source), Overrides(**overrides))


def edit(path: Path, **values: object) -> None:
    """Changes keys of a JSON file; a key with the value ... is removed."""
    content = {**json.loads(path.read_text(encoding="utf-8")), **values}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}), encoding="utf-8")


def readings(checkpoint: Checkpoint) -> dict[str, tuple[str, str]]:
    return {reading.what: (reading.value, reading.source) for reading in checkpoint.readings}


def test_stanford_reads_its_metadata(copy: Copy) -> None:
    folder = copy("stanford")
    edit(folder / "artifact.metadata", query_maxlen=20, doc_maxlen=30, mask_punctuation=False)
    checkpoint = read(folder)
    assert checkpoint.query.expansion == Expansion("[MASK]", 20, attended=False)
    assert (checkpoint.query.length, checkpoint.document.length) == (20, 30)
    assert (checkpoint.query.marker, checkpoint.document.marker) == ("[unused0]", "[unused1]")
    assert checkpoint.multi is not None
    assert checkpoint.multi.skip == ()
    assert readings(checkpoint)["query length"] == ("20", "artifact.metadata: query_maxlen")


def test_stanford_without_metadata_has_the_defaults_of_the_library() -> None:
    checkpoint = read(CHECKPOINTS / "stanford-without-metadata")
    assert checkpoint.query.length == 32
    assert readings(checkpoint)["query marker"] == ("[unused0]", "default of the layout")
    assert checkpoint.multi is not None
    assert "," in checkpoint.multi.skip


def test_stanford_needs_its_projection(copy: Copy) -> None:
    folder = copy("stanford")
    tensors = load_file(folder / "model.safetensors")
    del tensors["linear.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"has no linear\.weight .*: the projection of ColBERT is missing"):
        read(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"query_maxlen": "32"}, "'query_maxlen' is '32'; it must be a number of tokens"),
        (
            {"query_token_id": "[unused99999]"},
            "names the token '\\[unused99999\\]', which the vocabulary does not have",
        ),
        ({"similarity": "l2"}, "the similarity is not cosine"),
        ({"mask_punctuation": "yes"}, "'mask_punctuation' is 'yes'; it must be of type bool"),
    ],
)
def test_stanford_refuses_wrong_metadata(copy: Copy, values: dict[str, object], message: str) -> None:
    folder = copy("stanford")
    edit(folder / "artifact.metadata", **values)
    with pytest.raises(ModelError, match=message):
        read(folder)


def test_pylate_chains_all_dense_modules_with_residuals() -> None:
    checkpoint = read(CHECKPOINTS / "pylate-modernbert-residual")
    head = checkpoint.heads.multi
    assert head is not None
    assert len(head.layers) == 3
    assert checkpoint.multi is not None
    last = json.loads((CHECKPOINTS / "pylate-modernbert-residual" / "3_Dense" / "config.json").read_text())
    assert checkpoint.multi.dim == last["out_features"]


def test_a_prefix_of_pylate_that_is_not_in_the_vocabulary_is_refused(copy: Copy) -> None:
    folder = copy("pylate-bert")
    edit(folder / "config_sentence_transformers.json", query_prefix="[QUERY] ")
    with pytest.raises(ModelError, match=r"'\[QUERY\] ', which the vocabulary does not have; .* random weights"):
        read(folder)


def test_a_dense_module_that_is_missing_is_refused(copy: Copy) -> None:
    folder = copy("pylate-bert")
    (folder / "1_Dense" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="1_Dense has no weights"):
        read(folder)


def test_a_dense_module_with_another_shape_than_its_config_is_refused(copy: Copy) -> None:
    folder = copy("pylate-bert")
    edit(folder / "1_Dense" / "config.json", out_features=99)
    with pytest.raises(ModelError, match=r"its config says \[99, \d+\]"):
        read(folder)


def test_an_activation_of_other_code_is_refused(copy: Copy) -> None:
    folder = copy("pylate-bert")
    edit(folder / "1_Dense" / "config.json", activation_function="os.system")
    with pytest.raises(ModelError, match=r"the activation 'os\.system'; plait knows"):
        read(folder)


def test_old_settings_of_pooling_are_read(copy: Copy) -> None:
    folder = copy("st-bert-mean")
    old = {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old))
    head = read(folder).heads.dense
    assert head is not None
    assert head.poolings == ("cls", "mean")  # the order in which the library concatenates


def test_a_pooling_of_the_user_replaces_that_of_the_folder() -> None:
    checkpoint = read(CHECKPOINTS / "st-bert-mean", pooling="lasttoken")
    assert checkpoint.heads.dense is not None
    assert checkpoint.heads.dense.poolings == ("lasttoken",)
    assert readings(checkpoint)["pooling"] == ("lasttoken", "given by you")
    with pytest.raises(ConfigError, match="pooling is 'median'; plait knows mean"):
        Overrides(pooling="median")


def test_prompts_and_the_default_prompt(copy: Copy) -> None:
    folder = copy("st-bert-prompts")
    checkpoint = read(folder)
    assert checkpoint.query.prefix.startswith("Represent this sentence")
    assert checkpoint.document.prefix == "passage: "
    edit(folder / "config_sentence_transformers.json", prompts={"all": "text: "}, default_prompt_name="all")
    assert read(folder).query.prefix == read(folder).document.prefix == "text: "
    assert read(folder, query_prompt="", document_prompt="doc: ").query.prefix == ""
    assert read(folder, query_prompt="", document_prompt="doc: ").document.prefix == "doc: "


def test_prompts_that_are_left_out_of_the_mean_are_refused_until_they_are_removed(copy: Copy) -> None:
    folder = copy("st-bert-prompts")
    edit(folder / "1_Pooling" / "config.json", include_prompt=False)
    with pytest.raises(ModelError, match="include_prompt is false"):
        read(folder)
    with pytest.raises(ModelError, match="include_prompt is false"):
        read(folder, query_prompt="")
    assert read(folder, query_prompt="", document_prompt="").document.prefix == ""


def test_lengths_come_from_the_first_file_that_has_them(copy: Copy) -> None:
    folder = copy("st-bert-mean")
    assert readings(read(folder))["document length"][1] == "config.json: max_position_embeddings"
    edit(folder / "sentence_bert_config.json", max_seq_length=48)
    assert readings(read(folder))["document length"] == ("48", "sentence_bert_config.json: max_seq_length")
    assert read(folder, document_length=20, query_length=10).document.length == 20
    with pytest.raises(ConfigError, match="the document length is 100; the model has positions for 64 tokens"):
        read(folder, document_length=100)


def test_vectors_are_compared_as_the_model_says(copy: Copy) -> None:
    folder = copy("st-bert-sqrt")  # dot product
    checkpoint = read(folder)
    assert checkpoint.similarity == "dot"
    assert checkpoint.heads.dense is not None
    assert not checkpoint.heads.dense.normalize
    edit(folder / "config_sentence_transformers.json", similarity_fn_name="euclidean")
    with pytest.raises(ModelError, match="the similarity is 'euclidean'"):
        read(folder)


def test_matryoshka_keeps_the_first_dimensions() -> None:
    head = read(CHECKPOINTS / "st-bert-mean", dims=8).heads.dense
    assert head is not None
    assert head.dim == 8
    with pytest.raises(ConfigError, match=r"the vectors have \d+ dimensions; 1000 cannot be kept"):
        read(CHECKPOINTS / "st-bert-mean", dims=1000)


def test_a_module_that_plait_does_not_know_is_refused(copy: Copy) -> None:
    folder = copy("st-bert-mean")
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 3, "name": "3", "path": "3_CNN", "type": "sentence_transformers.models.CNN"})
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="has the module CNN"):
        read(folder)


def test_a_module_outside_of_the_folder_is_refused(copy: Copy) -> None:
    folder = copy("st-bert-mean")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = "../../other"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="names no module"):
        read(folder)


def test_code_of_a_checkpoint_is_refused(copy: Copy) -> None:
    folder = copy("st-bert-mean")
    edit(folder / "config.json", auto_map={"AutoModel": "modeling.Custom"})
    with pytest.raises(ModelError, match=r"brings code of its own .* plait runs no code of a checkpoint"):
        read(folder)


def test_code_of_a_built_in_architecture_is_not_needed(copy: Copy) -> None:
    folder = copy("constbert")
    edit(folder / "config.json", auto_map={"AutoModel": "modeling.ConstBERT"})
    assert "it is not run" in read(folder).warnings[0]


def test_an_architecture_without_a_graph_is_refused(copy: Copy) -> None:
    folder = copy("st-bert-mean")
    edit(folder / "config.json", model_type="longformer")
    with pytest.raises(ModelError, match="a 'longformer' backbone cannot be exported"):
        read(folder)


def test_bge_m3_has_three_kinds_of_vectors() -> None:
    checkpoint = read(CHECKPOINTS / "bge-m3")
    assert checkpoint.heads.dense is not None
    assert checkpoint.heads.dense.poolings == ("cls",)
    assert isinstance(checkpoint.heads.sparse, SparseTokens)
    assert checkpoint.multi is not None
    assert not checkpoint.multi.first_row
    specials = [number for number, is_kept in enumerate(checkpoint.heads.sparse.is_kept) if not is_kept]
    assert specials == [0, 1, 2, 3]


@pytest.mark.parametrize("file", ["colbert_linear.pt", "sparse_linear.pt"])
def test_bge_m3_needs_both_heads(copy: Copy, file: str) -> None:
    folder = copy("bge-m3")
    (folder / file).unlink()
    with pytest.raises(ModelError, match=f"has no {file}: a head of BGE-M3 is missing"):
        read(folder)


def test_mcls_is_an_option_of_bge_m3() -> None:
    checkpoint = read(CHECKPOINTS / "bge-m3", mcls=16)
    assert checkpoint.document.mcls == 16
    assert checkpoint.heads.dense is not None
    assert checkpoint.heads.dense.poolings == ("mcls",)


def test_xtr_reads_lower_case() -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(read(CHECKPOINTS / "xtr").tokenizer)
    assert tokenizer.encode("WATER").ids == tokenizer.encode("water").ids


@pytest.mark.parametrize("name", ["constbert", "constbert-flattened"])
def test_the_shape_of_the_mixer_decides(name: str) -> None:
    mixture = read(CHECKPOINTS / name).heads.mixture
    assert mixture is not None
    assert mixture.flat == (name == "constbert-flattened")
    assert mixture.n_positions == 40


def test_a_mixer_for_another_length_is_refused(copy: Copy) -> None:
    folder = copy("constbert")
    edit(folder / "config.json", doc_maxlen=50)
    with pytest.raises(ModelError, match=r"which is for 40 tokens; config\.json: doc_maxlen is 50"):
        read(folder)


def test_inference_free_queries_have_a_weight_for_each_term(copy: Copy) -> None:
    folder = copy("st-splade-static-query")
    sparse = read(folder).heads.sparse
    assert isinstance(sparse, SparseVocabulary)
    assert sparse.query_weights is not None
    save_file({"weight": np.ones(7, np.float32)}, folder / "query_0_SparseStaticEmbedding" / "model.safetensors")
    with pytest.raises(ModelError, match=r"must have a 'weight' for each of \d+ terms; it has \[7\]"):
        read(folder)


def test_a_router_to_other_modules_is_refused(copy: Copy) -> None:
    folder = copy("st-splade-static-query")
    edit(folder / "router_config.json", structure={"query": ["document_0_Transformer"], "document": []})
    with pytest.raises(ModelError, match="routes queries to Transformer"):
        read(folder)


def test_splade_needs_the_head_of_its_language_model(copy: Copy) -> None:
    folder = copy("st-splade-bert")
    tensors = {name: value for name, value in load_file(folder / "model.safetensors").items() if "cls." not in name}
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match="no head of a masked language model"):
        read(folder)


@pytest.mark.parametrize(
    ("name", "activation", "source"),
    [
        ("st-cross-bert", "", "config_sentence_transformers.json: activation_fn"),
        ("st-cross-bert-sigmoid", "sigmoid", "config_sentence_transformers.json: activation_fn"),
        ("cross-bert-old", "", "config.json: sbert_ce_default_activation_function"),
        ("cross-xlm-roberta-plain", "sigmoid", "default of the layout"),
    ],
)
def test_the_activation_of_a_reranker(name: str, activation: str, source: str) -> None:
    checkpoint = read(CHECKPOINTS / name)
    assert checkpoint.activation == activation
    assert readings(checkpoint)["activation"][1] == source


def test_a_classifier_with_several_outputs_is_no_reranker(copy: Copy) -> None:
    folder = copy("st-cross-bert")
    edit(folder / "config.json", id2label={"0": "no", "1": "yes"})
    with pytest.raises(ModelError, match=r"has 2 outputs .*a reranker has one"):
        read(folder)


def test_token_types_are_given_to_models_that_have_them() -> None:
    assert read(CHECKPOINTS / "st-cross-bert").token_types
    assert not read(CHECKPOINTS / "st-cross-roberta").token_types


def test_the_pooling_of_a_graph_is_guessed_by_its_family_or_with_a_warning() -> None:
    assert readings(read(CHECKPOINTS / "fastembed-bge-tiny"))["pooling"] == ("cls", "the name of the model")
    plain = read(CHECKPOINTS / "fastembed-bge-tiny", "someone/other")
    assert plain.graph is not None
    assert plain.graph.pooling == "mean"
    assert "plait takes the mean" in plain.warnings[0]
    chosen = read(CHECKPOINTS / "fastembed-bge-tiny", pooling="mean")
    assert not chosen.warnings


def test_a_damaged_graph_is_refused(copy: Copy) -> None:
    folder = copy("fastembed-bge-tiny")
    (folder / "model_optimized.onnx").write_bytes(b"\xff" * 50)
    with pytest.raises(ModelError, match="is not an ONNX graph"):
        read(folder)


def test_a_mapping_to_rows_that_do_not_exist_is_refused(copy: Copy) -> None:
    folder = copy("model2vec-weights")
    tensors = load_file(folder / "model.safetensors")
    n_tokens = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    mapping = np.full(n_tokens, 10**6, np.int64)
    save_file({**tensors, "mapping": mapping}, folder / "model.safetensors")
    with pytest.raises(ModelError, match="'mapping' names rows that 'embeddings' does not have"):
        read(folder)


PAGE = """---
license: apache-2.0
language:
- en
- de
tags: [sentence-similarity, "colbert"]
---
# A model
"""


def test_licence_and_languages_come_from_the_page(copy: Copy) -> None:
    folder = copy("st-bert-mean")
    (folder / "README.md").write_text(PAGE, encoding="utf-8")
    checkpoint = read(folder)
    assert checkpoint.licence == "apache-2.0"
    assert checkpoint.languages == ("en", "de")
    assert front_matter(PAGE)["tags"] == ["sentence-similarity", "colbert"]
    assert front_matter("no page") == {}
    (folder / "README.md").unlink()
    assert read(folder).licence == "not stated"
