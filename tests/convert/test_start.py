"""Training that starts from a checkpoint: before the first step the model gives the embeddings of the library that
wrote the checkpoint, nothing is reset silently, and what cannot be trained is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from convert.parity import CHECKPOINTS, PAIR_DOCUMENTS, Outputs, compare, golden_of, texts
from convert.started import saved_model, start_recipe
from plait.convert.start import read_start
from plait.encode.load import load_model
from plait.errors import ConfigError, ModelError
from plait.rerank.cross_encoder import load_cross
from plait.train import checkpoint as trained_models
from plait.train.build import build, check_plan, read_plan
from plait.train.cross.export import export_cross
from plait.train.export.export import ExportConfig, export_run
from plait.train.head_layers import make_layers
from plait.train.model_config import ACTIVATIONS, LayerConfig
from plait.train.recipe import Recipe, parse_recipe

MIN_COSINE, MAX_DIFFERENCE = 0.9999, 1e-4
ENCODERS = (
    "stanford",
    "pylate-bert",
    "pylate-modernbert-residual",
    "bge-m3",
    "xtr",
    "constbert",
    "constbert-flattened",
    "st-bert-mean",
    "st-bert-cls",
    "st-bert-cls-mean",
    "st-bert-lasttoken",
    "st-bert-max",
    "st-bert-sqrt",
    "st-bert-weightedmean",
    "st-bert-dense",
    "st-bert-matryoshka",
    "st-gte",
    "st-multi-minimum",
)
CROSS_ENCODERS = ("st-cross-bert", "st-cross-bert-sigmoid", "st-cross-modernbert", "st-cross-deberta-v3")


def plan_of(name: str, more: str = "") -> tuple[Recipe, object]:
    start = read_start(CHECKPOINTS / name)
    recipe = start_recipe(start, CHECKPOINTS / name, more)
    return recipe, start


@pytest.mark.parametrize("name", ENCODERS)
def test_before_the_first_step_the_model_equals_its_origin(name: str, tmp_path: Path) -> None:
    saved_model(CHECKPOINTS / name, tmp_path / "saved")
    export_run(tmp_path / "saved", tmp_path / "model", ExportConfig(precision="fp32", n_threads=1))
    encoder, (queries, documents) = load_model(tmp_path / "model", n_threads=1), texts()
    golden = golden_of(name)
    outputs = Outputs(name, encoder.encode_queries(queries), encoder.encode_documents(documents), None)
    results = compare(golden, outputs)
    assert [result.kind for result in results] == golden.kinds
    for result in results:
        assert result.same_counts, result
        assert result.cosine >= MIN_COSINE, result
        assert result.difference <= MAX_DIFFERENCE, result


@pytest.mark.parametrize("name", CROSS_ENCODERS)
def test_before_the_first_step_a_cross_encoder_equals_its_origin(name: str, tmp_path: Path) -> None:
    saved_model(CHECKPOINTS / name, tmp_path / "saved")
    made = export_cross(tmp_path / "saved", tmp_path / "model")
    assert made.card.head == "classifier"
    queries, documents = texts()
    pairs = [(query, document) for query in queries for document in documents[::PAIR_DOCUMENTS]]
    scores = load_cross(tmp_path / "model", precision="fp32", n_threads=1).score(pairs)
    result = compare(golden_of(name), Outputs(name, None, None, scores))[0]
    assert result.cosine >= MIN_COSINE, result
    assert result.difference <= MAX_DIFFERENCE, result


def test_the_card_keeps_what_the_checkpoint_says(tmp_path: Path) -> None:
    saved_model(CHECKPOINTS / "stanford", tmp_path / "saved")
    card = export_run(tmp_path / "saved", tmp_path / "model", ExportConfig(n_threads=1)).card
    assert card.query.marker == "[unused0]"
    assert card.document.marker == "[unused1]"
    assert (card.query.length, card.document.length) == (24, 40)
    assert card.query.expansion is not None
    assert card.query.expansion.token == "[MASK]"
    assert card.multi is not None
    assert "." in card.multi.skip


def test_what_was_taken_changed_and_added_is_written_to_the_run(tmp_path: Path) -> None:
    more = "query = {length = 12}\nmulti = {skip = ['.']}\ndense = {pooling = 'cls'}\n"
    saved_model(CHECKPOINTS / "stanford", tmp_path / "saved", more)
    about = json.loads((tmp_path / "saved-run" / "start.json").read_text(encoding="utf-8"))
    assert about["layout"] == "stanford-colbert"
    assert any(line.startswith("projection: 16 to 8 (model.safetensors") for line in about["taken"])
    assert "query length is 12, was 24" in about["changed"]
    assert "query expansion follows to 12 tokens" in about["changed"]
    assert any(line.startswith("multi skip is ['.'], was") for line in about["changed"])
    assert about["new"] == ["dense head"]
    config = trained_models.read_model_config(tmp_path / "saved")
    assert config.query.expansion is not None
    assert (config.query.length, config.query.expansion.length) == (12, 12)
    assert config.multi is not None
    assert (config.multi.skip, config.multi.dim) == ((".",), 8)


def test_the_same_start_without_changes_reports_none() -> None:
    recipe, start = plan_of("bge-m3")
    origin = check_plan(recipe, start)  # type: ignore[arg-type]
    assert origin is not None
    assert (origin.changed, origin.new) == ((), ())
    assert origin.lines()[0] == "start: bge-m3, layout bge-m3"
    assert any("taken over: colbert_linear: 16 to 16" in line for line in origin.lines())


def test_a_new_head_of_sparse_weights_drops_special_tokens(tmp_path: Path) -> None:
    saved_model(CHECKPOINTS / "stanford", tmp_path / "saved", "sparse = {}\n")
    config = trained_models.read_model_config(tmp_path / "saved")
    assert config.sparse is not None
    assert len(config.sparse.zero_ids) >= 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("st-splade-bert", "weighs every term of the vocabulary.*backbone = "),
        ("model2vec", "static model"),
        ("onnx-colbert", "has a finished graph and no weights"),
        ("fastembed-bge-tiny", "has a finished graph and no weights"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_what_can(name: str, said: str) -> None:
    start = read_start(CHECKPOINTS / name)
    recipe = start_recipe(read_start(CHECKPOINTS / "st-bert-mean"), CHECKPOINTS / name)
    with pytest.raises(ConfigError, match=said):
        check_plan(recipe, start)


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("stanford", "backbone = 'bert'\n", "backbone and start are both set"),
        ("stanford", "tokenizer = 'bert'\n", "tokenizer and start are both set"),
        ("stanford", "init_from = 'x'\n", "init_from and start are both set"),
        ("stanford", "random = {model_type = 'bert'}\n", "random and start are both set"),
        ("stanford", "multi = {dim = 64}\n", "dim is 64, and the projection of stanford has 8"),
        ("stanford", "multi = {layers = [{dim = 8}]}\n", "the projection of stanford has"),
        ("st-bert-dense", "dense = {layers = [{dim = 8}]}\n", "layers are those of st-bert-dense"),
        ("constbert", "multi = {fixed = {n_vectors = 3}}\n", "fixed differs in n_vectors from the mixer of constbert"),
        ("stanford", "query = 'long'\n", "must be a table"),
        ("stanford", "query = {fixed = 3}\n", "unknown key 'fixed'"),
        ("st-cross-bert", "head = 'emb'\n", "takes over the whole cross-encoder"),
        ("st-cross-bert", "layers = 1\n", "Beside it a recipe may set kind, name, start"),
    ],
)
def test_a_recipe_that_contradicts_its_start_is_an_error(name: str, more: str, said: str) -> None:
    recipe, start = plan_of(name, more)
    with pytest.raises(ConfigError, match=said):
        check_plan(recipe, start)  # type: ignore[arg-type]


def test_a_recipe_and_a_start_of_different_kinds_are_an_error() -> None:
    cross, stanford = read_start(CHECKPOINTS / "st-cross-bert"), read_start(CHECKPOINTS / "stanford")
    with pytest.raises(ConfigError, match="is a cross-encoder; train it with kind = 'cross-encoder'"):
        check_plan(start_recipe(stanford, CHECKPOINTS / "st-cross-bert"), cross)
    with pytest.raises(ConfigError, match="gives vectors, and is no cross-encoder"):
        check_plan(start_recipe(cross, CHECKPOINTS / "stanford"), stanford)


def test_a_loss_of_a_head_that_the_start_does_not_have_is_an_error() -> None:
    recipe, start = plan_of("stanford")
    dense = parse_recipe(recipe.toml().replace('kind = "multi"', 'kind = "dense"'))
    check_plan(dense)  # what the checkpoint has is not known yet
    with pytest.raises(ConfigError, match="the loss trains the dense head, and the model has none"):
        check_plan(dense, start)  # type: ignore[arg-type]


def test_retromae_takes_a_backbone_and_no_start() -> None:
    recipe, start = plan_of("stanford")
    retromae = parse_recipe(recipe.toml().replace('name = "contrastive"\nkind = "multi"', 'name = "retromae"'))
    with pytest.raises(ConfigError, match="set backbone instead of start"):
        read_plan(retromae, start)  # type: ignore[arg-type]


def test_a_start_that_was_not_read_is_an_error(tmp_path: Path) -> None:
    recipe, _ = plan_of("stanford")
    with pytest.raises(ConfigError, match="read_start"):
        build(recipe, tmp_path)


def test_a_cross_encoder_with_shorter_pairs_gives_the_query_half(tmp_path: Path) -> None:
    saved_model(CHECKPOINTS / "st-cross-bert", tmp_path / "saved", "length = 23\n")
    raw = json.loads((tmp_path / "saved" / "model.json").read_text())["cross-encoder"]
    assert (raw["length"], raw["query_length"]) == (23, 10)
    about = json.loads((tmp_path / "saved-run" / "start.json").read_text())
    assert about["changed"] == ["length is 23, was 64"]


def test_a_run_and_a_model_folder_are_refused_as_a_start(tmp_path: Path) -> None:
    saved_model(CHECKPOINTS / "stanford", tmp_path / "saved")
    with pytest.raises(ConfigError, match=r"is a run of plait train.*init_from"):
        read_start(tmp_path / "saved")
    export_run(tmp_path / "saved", tmp_path / "model", ExportConfig(n_threads=1))
    with pytest.raises(ConfigError, match="is a model folder"):
        read_start(tmp_path / "model")
    with pytest.raises(ModelError):
        read_start(tmp_path / "nothing")


def test_every_activation_of_a_layer_runs_and_can_be_exported() -> None:
    from plait.graphs.builder import ACTIVATIONS as EXPORTED

    assert set(ACTIVATIONS) <= set(EXPORTED)
    for activation in ACTIVATIONS:
        layers = make_layers(4, [LayerConfig(dim=6, activation=activation, residual="linear"), LayerConfig(dim=6)])
        assert layers(torch.ones(2, 4)).shape == (2, 6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dim": 0}, "at least 1"),
        ({"dim": 2, "activation": "softmax"}, "choose one of gelu"),
        ({"dim": 2, "residual": "both"}, "choose 'input' or 'linear'"),
        ({"dim": 2, "norm": -1.0}, "epsilon"),
    ],
)
def test_a_layer_that_cannot_be_is_an_error(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LayerConfig(**settings)  # type: ignore[arg-type]


def test_layers_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ConfigError, match="cannot add its input"):
        make_layers(4, [LayerConfig(dim=6, residual="input")])
    with pytest.raises(ConfigError, match="a norm of 6 dimensions follows a layer of 4"):
        make_layers(4, [LayerConfig(dim=6, norm=1e-5)])
