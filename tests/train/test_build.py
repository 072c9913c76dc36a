"""Building a model from a recipe: IDF and stemming tables, initial weights, and settings that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from plait.encode.load import find_model, open_tokenizer
from plait.errors import ConfigError, InputError
from plait.train.build import build, initialise_from, read_plan
from plait.train.checkpoint import save
from plait.train.corpora import corpus_batches
from plait.train.idf import inverse_document_frequencies, stemmed_terms
from plait.train.model import Model
from plait.train.model_config import DenseHeadConfig, ModelConfig, MultiHeadConfig
from plait.train.recipe import read_recipe
from plait.train.tokenization import TextTokenizer
from train.corpora import write_beir
from train.tiny import tiny_model

RECIPES = Path(__file__).parent.parent.parent / "recipes"


@pytest.fixture(scope="module")
def texts() -> TextTokenizer:
    return TextTokenizer(
        open_tokenizer(find_model() / "tokenizer.json"), ModelConfig(backbone="x", dense=DenseHeadConfig())
    )


def test_idf_is_higher_in_fewer_documents(texts: TextTokenizer, tmp_path: Path) -> None:
    write_beir(tmp_path / "set")
    result = inverse_document_frequencies([str(tmp_path / "set")], texts, 30522, limit=0)
    the, river, unseen = (texts.tokenizer.token_to_id(word) for word in ("the", "river", "guitar"))
    assert 0 <= result[the] < result[river] < result[unseen] == 1
    few = inverse_document_frequencies([str(tmp_path / "set")], texts, 30522, limit=1)
    assert few[the] < few[river] == 1


def test_words_of_one_term_have_one_idf(texts: TextTokenizer, tmp_path: Path) -> None:
    write_beir(tmp_path / "set")
    forms = stemmed_terms(texts.tokenizer.get_vocab(), 30522, "en")
    result = inverse_document_frequencies([str(tmp_path / "set")], texts, 30522, limit=0, terms=forms)
    river, rivers = (texts.tokenizer.token_to_id(word) for word in ("river", "rivers"))
    assert result[river] == result[rivers] < 1


@pytest.mark.parametrize("beginning", ["", "▁", "Ġ"])
def test_words_of_one_stem_share_the_shortest_words_id(beginning: str) -> None:
    words = ["cells", "cell", "celled", "is", "walls", "##s", "2020s", "[CLS]"]
    vocabulary = {word if word[0] in "#[" else beginning + word: number for number, word in enumerate(words)}
    terms = stemmed_terms(vocabulary | {"##cells": 8}, 9, "en")
    assert terms.tolist() == [1, 1, 1, 3, 4, 5, 6, 7, 8]


def test_a_part_of_a_word_is_its_own_term() -> None:
    assert stemmed_terms({"▁cell": 0, "cells": 1, "▁cells": 2}, 3, "en").tolist() == [0, 1, 0]


def test_dropout_that_would_not_be_used_is_refused() -> None:
    with pytest.raises(ConfigError, match="dropout is for a backbone that is loaded"):
        read_plan(read_recipe(RECIPES / "tiny.toml", ["model.dropout=0.0"]))
    with pytest.raises(ConfigError, match=r"dropout is 1\.5; it is the share"):
        read_plan(read_recipe(RECIPES / "encoder.toml", ["model.dropout=1.5"]))


def test_stemming_needs_a_language_with_a_stemmer() -> None:
    with pytest.raises(ConfigError, match="stemming is 'xx'; choose one of ar, "):
        read_plan(read_recipe(RECIPES / "tiny.toml", ["model.sparse={stemming = 'xx'}"]))


def test_idf_needs_a_corpus(texts: TextTokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no corpus\.jsonl"):
        inverse_document_frequencies([str(tmp_path)], texts, 30522, limit=0)


def test_idf_and_idf_corpora_need_each_other() -> None:
    for change in ("model.sparse={idf = true}", "model.idf_corpora=['somewhere']"):
        with pytest.raises(ConfigError, match="set both, or neither"):
            read_plan(read_recipe(RECIPES / "tiny.toml", [change]))


def test_a_projection_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a projection of \(384, 128\); the model needs \(32, 16\)"):
        initialise_from(tiny_model(), find_model())


def test_all_weights_of_a_trained_model_are_copied(texts: TextTokenizer, tmp_path: Path) -> None:
    before, after = tiny_model(), tiny_model()
    for parameter in before.parameters():
        parameter.data += 1
    save(before, texts.tokenizer, tmp_path / "final")
    initialise_from(after, tmp_path / "final")
    assert all(torch.equal(value, after.state_dict()[name]) for name, value in before.state_dict().items())
    with pytest.raises(ConfigError, match="a model with other heads or sizes"):
        initialise_from(tiny_model(multi=MultiHeadConfig(dim=8)), tmp_path / "final")


def test_a_projection_is_copied_and_its_bias_is_zero() -> None:
    model = tiny_model(multi=MultiHeadConfig(dim=128, bias=True))
    assert model.multi is not None
    model.multi.project = torch.nn.Linear(384, 128)
    initialise_from(model, find_model())
    weight = model.multi.project.weight.detach().numpy()
    assert np.linalg.norm(weight, axis=1).mean() == pytest.approx(1, abs=0.1)
    assert not model.multi.project.bias.detach().any()


def test_the_projection_begins_with_the_principal_directions(tmp_path: Path) -> None:
    corpus = str(RECIPES / "tiny-data")
    changes = ["model.multi={dim = 12, bias = true}", f"model.projection_corpora=['{corpus}']", "run.seed=3"]
    trained = build(read_recipe(RECIPES / "tiny.toml", changes), tmp_path)
    model, rows = trained.model, []
    texts = trained.texts
    assert isinstance(model, Model)
    assert isinstance(texts, TextTokenizer)
    assert model.multi is not None
    model.eval()
    for batch in corpus_batches([corpus], limit=500, size=16, key="projection_corpora"):
        tokens = texts.documents(batch)
        rows.append(model.backbone(tokens)[tokens.rows].detach())
    states = torch.cat(rows)
    projected = model.multi.project(states).detach().double()
    assert projected.mean(dim=0).abs().max() < 1e-3  # centred
    largest = torch.linalg.svdvals(states.double() - states.double().mean(dim=0))[:12]
    assert torch.allclose(torch.linalg.svdvals(projected), largest, rtol=1e-3)


def test_a_projection_is_not_fitted_to_a_few_tokens(tmp_path: Path) -> None:
    few = [f"model.projection_corpora=['{RECIPES / 'tiny-data'}']", "model.projection_limit=1"]
    with pytest.raises(InputError, match=r"need at least \d+\. Name more corpora"):
        build(read_recipe(RECIPES / "tiny.toml", few), tmp_path)
    with pytest.raises(ConfigError, match="both give the projection"):
        read_plan(read_recipe(RECIPES / "tiny.toml", ["model.projection_corpora=['a']", "model.init_from='b'"]))
