"""Training, evaluation and export of cross-encoders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from plait.cli.app import app
from plait.errors import ConfigError, InputError, ModelError
from plait.rerank.cross_encoder import load_cross
from plait.rerank.pairs import PairTokenizer
from plait.train.build import build, check_plan
from plait.train.cross.build import list_loss
from plait.train.cross.config import CrossConfig, CrossEntropyConfig
from plait.train.cross.export import PROBES, cross_source, export_cross
from plait.train.cross.model import CrossModel, PairTokens
from plait.train.cross.model import is_cross_checkpoint as is_trained_cross
from plait.train.cross.model import load_cross_checkpoint as load
from plait.train.cross.scorers import TorchPairScorer
from plait.train.mining.config import MiningConfig
from plait.train.mining.teacher import open_teacher
from plait.train.recipe import Recipe, read_recipe
from plait.train.run import Run
from train.tiny import tiny_backbone, tiny_config

RECIPES = Path(__file__).parents[3] / "recipes"
DATA = RECIPES / "tiny-data"


def recipe_of(name: str, *changes: str) -> Recipe:
    paths = [f"data.0.path={DATA}", f"mining.corpus={DATA}", f"evaluation.data={DATA}", "run.cpu=true"]
    return read_recipe(RECIPES / f"{name}.toml", [*paths, *changes])


@pytest.fixture(scope="module", params=["cls", "emb"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cross") / "run"
    Run(recipe_of(f"cross-{request.param}", "optimiser.steps=12", "evaluation.every=6"), folder, build).train()
    return folder


def test_a_run_leaves_curves_and_a_model_that_loads(trained: Path) -> None:
    curves = [json.loads(line) for line in (trained / "curves.jsonl").read_text().splitlines()]
    values = [line["value"] for line in curves if "value" in line]
    assert len(values) == 2
    assert all(0 < value <= 1 for value in values)
    assert all(0 < line["loss"] < 5 for line in curves if "loss" in line)
    assert is_trained_cross(trained / "best")


def test_the_exported_folder_scores_as_the_model_does(trained: Path, tmp_path: Path) -> None:
    exported = export_cross(trained / "final", tmp_path / "out")
    assert exported.differences["fp32"] < 1e-3
    model, tokenizer = load(trained / "final")
    wanted = TorchPairScorer(model, PairTokenizer(tokenizer, model.config.pair_input)).score(PROBES)
    result = load_cross(tmp_path / "out", precision="fp32", n_threads=1)
    np.testing.assert_allclose(result.score(PROBES), wanted, atol=1e-4)
    assert load_cross(tmp_path / "out", n_threads=1).fingerprint == result.fingerprint
    with pytest.raises(ConfigError, match="exists"):
        export_cross(trained / "final", tmp_path / "out")


def test_the_command_exports_a_run_of_a_cross_encoder_by_itself(trained: Path, tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["export", str(trained), "--to", str(tmp_path / "out"), "--language", "en"])
    assert answer.exit_code == 0, answer.output
    card = load_cross(tmp_path / "out", n_threads=1).card
    assert (card.languages, list(card.precisions)) == (("en",), ["int8"])
    assert cross_source(trained, "final") == trained / "final"
    assert cross_source(tmp_path) is None


def test_an_exported_folder_is_a_teacher(trained: Path, tmp_path: Path) -> None:
    export_cross(trained / "final", tmp_path / "out", fp32=False)
    assert not (tmp_path / "out" / "model.onnx").exists()
    scores = open_teacher(MiningConfig(teacher=str(tmp_path / "out"))).score([("a query", "a text")])
    assert scores.shape == (1,)


def test_a_transformers_classifier_is_exported(trained: Path, tmp_path: Path) -> None:
    from transformers import BertForSequenceClassification

    _, tokenizer = load(trained / "final")
    config = tiny_config("bert", 2)
    config.num_labels, config.vocab_size, config.max_position_embeddings = 1, tokenizer.get_vocab_size(), 96
    torch.manual_seed(0)
    model = BertForSequenceClassification(config).eval()
    model.save_pretrained(str(tmp_path / "hf"))
    tokenizer.save(str(tmp_path / "hf" / "tokenizer.json"))
    export_cross(tmp_path / "hf", tmp_path / "out", length=80, query_length=20, int8=False)
    result = load_cross(tmp_path / "out", n_threads=1)
    assert result.card.head == "classifier"
    ids = tokenizer.encode("a query", "a text")
    with torch.no_grad():
        logits = model(torch.tensor([ids.ids]), token_type_ids=torch.tensor([ids.type_ids])).logits
    np.testing.assert_allclose(result.score([("a query", "a text")]), logits[:, 0].numpy(), atol=1e-5)


def test_only_cross_encoders_are_exported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="neither a cross-encoder"):
        export_cross(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_microbatches_give_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    changes = ["optimiser.steps=1", "evaluation.data=''", "model.dropout=0.0"]
    sizes = "hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32"
    random = f"model.random={{model_type='bert', {sizes}, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0}}"
    norms = []
    for part in (0, 5):
        folder = tmp_path / str(part)
        Run(recipe_of("cross-cls", *changes, random, f"loss.microbatch={part}"), folder, build).train()
        norms.append(json.loads((folder / "curves.jsonl").read_text().splitlines()[0])["norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_two_runs_of_one_seed_give_the_same_bits(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    recipe = recipe_of("cross-emb", "optimiser.steps=4", "evaluation.data=''")
    Run(recipe, tmp_path / "whole", build).train()
    Run(recipe, tmp_path / "again", build).train()
    one, other = (load_file(str(tmp_path / name / "final" / "model.safetensors")) for name in ("whole", "again"))
    assert all(torch.equal(one[name], other[name]) for name in one)


# -- the model


def pairs(ids: list[list[int]]) -> PairTokens:
    given = torch.tensor(ids)
    return PairTokens(given, torch.ones_like(given), torch.zeros_like(given))


def test_emb_is_the_inner_product_at_the_markers() -> None:
    config = CrossConfig(backbone="x", head="emb", scale=0.5)
    model = CrossModel(config, tiny_backbone(), (7, 9)).eval()
    tokens = pairs([[1, 7, 2, 9], [7, 5, 9, 4]])
    with torch.no_grad():
        states = model.backbone.encoder(tokens.ids, attention_mask=tokens.mask).last_hidden_state
        expected = torch.stack([states[0, 1] @ states[0, 3], states[1, 0] @ states[1, 2]]) * 0.5
        torch.testing.assert_close(model(tokens), expected)


def test_the_tiny_variant_has_two_layers() -> None:
    model = CrossModel(CrossConfig(backbone="x", layers=2), tiny_backbone(n_layers=3), None)
    assert model.backbone.n_layers == 2
    with pytest.raises(ConfigError, match="layers is 9, and the backbone has 3"):
        CrossModel(CrossConfig(backbone="x", layers=9), tiny_backbone(n_layers=3), None)


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "mpnet"])
def test_any_backbone_scores_pairs(kind: str) -> None:
    model = CrossModel(CrossConfig(backbone="x"), tiny_backbone(kind), None).eval()
    assert model(pairs([[1, 5, 2], [1, 6, 2]])).shape == (2,)


# -- the loss


def test_the_loss_is_cross_entropy_of_the_first() -> None:
    scores = torch.tensor([[2.0, 0.0, 9.0], [1.0, 1.0, 1.0]])
    known = torch.tensor([[True, True, False], [True, True, True]])
    result = list_loss(scores, known, None, CrossEntropyConfig())
    expected = (np.log1p(np.exp(-2.0)) + np.log(3.0)) / 2
    assert float(result.total) == pytest.approx(expected, rel=1e-5)


def test_a_teacher_that_agrees_adds_no_loss() -> None:
    scores = torch.tensor([[2.0, 0.0, 1.0]])
    known = torch.ones(1, 3, dtype=torch.bool)
    result = list_loss(scores, known, scores.clone(), CrossEntropyConfig(teacher_weight=1.0))
    assert float(result.total) == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(InputError, match="no teacher's scores"):
        list_loss(scores, known, None, CrossEntropyConfig(teacher_weight=0.5))


# -- recipes that cannot work


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.head=mean", "head is 'mean'"),
        ("model.dence={}", "unknown key 'dence'"),
        ("model.query_length=80", "query_length is 80"),
        ("model.markers=['[unused0]']", "two different ones"),
        ("loss.name=contrastive", "trained with the loss 'cross-entropy'"),
        ("loss.teacher_weight=0.5", "mining names no teacher"),
        ("batching.n_negatives=0", "own negatives only"),
        ("mining.first_searcher=model", "cannot search for its own"),
    ],
)
def test_an_invalid_recipe_is_refused_before_anything_is_loaded(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_plan(recipe_of("cross-emb", change))
