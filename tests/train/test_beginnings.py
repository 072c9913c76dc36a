"""What a head begins with: how rare ids are, and a projection of another model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from plait.encode.load import find_model, open_tokenizer
from plait.errors import ConfigError, InputError
from plait.train.build import read_plan, start_from
from plait.train.checkpoint import save
from plait.train.idf import rarity, terms_of_forms
from plait.train.model_config import DenseHeadConfig, ModelConfig, MultiHeadConfig
from plait.train.recipe import read_recipe
from plait.train.tokenization import Texts
from train.corpora import write_beir
from train.tiny import tiny_model

RECIPES = Path(__file__).parent.parent.parent / "recipes"


@pytest.fixture(scope="module")
def texts() -> Texts:
    return Texts(open_tokenizer(find_model() / "tokenizer.json"), ModelConfig(backbone="x", dense=DenseHeadConfig()))


def test_an_id_is_the_rarer_the_fewer_documents_have_it(texts: Texts, tmp_path: Path) -> None:
    write_beir(tmp_path / "set")
    found = rarity([str(tmp_path / "set")], texts, 30522, limit=0)
    the, river, unseen = (texts.tokenizer.token_to_id(word) for word in ("the", "river", "guitar"))
    assert 0 <= found[the] < found[river] < found[unseen] == 1
    few = rarity([str(tmp_path / "set")], texts, 30522, limit=1)
    assert few[the] < few[river] == 1


def test_a_form_is_as_rare_as_the_word_that_it_counts_as(texts: Texts, tmp_path: Path) -> None:
    write_beir(tmp_path / "set")
    forms = terms_of_forms(texts.tokenizer.get_vocab(), 30522, "en")
    found = rarity([str(tmp_path / "set")], texts, 30522, limit=0, forms=forms)
    river, rivers = (texts.tokenizer.token_to_id(word) for word in ("river", "rivers"))
    assert found[river] == found[rivers] < 1


@pytest.mark.parametrize("beginning", ["", "▁", "Ġ"])
def test_whole_words_of_one_stem_are_the_shortest_of_them(beginning: str) -> None:
    words = ["cells", "cell", "celled", "is", "walls", "##s", "2020s", "[CLS]"]
    vocabulary = {word if word[0] in "#[" else beginning + word: number for number, word in enumerate(words)}
    terms = terms_of_forms(vocabulary | {"##cells": 8}, 9, "en")
    assert terms.tolist() == [1, 1, 1, 3, 4, 5, 6, 7, 8]


def test_a_piece_of_a_word_is_its_own_term() -> None:
    assert terms_of_forms({"▁cell": 0, "cells": 1, "▁cells": 2}, 3, "en").tolist() == [0, 1, 0]


def test_dropout_that_would_not_be_used_is_refused() -> None:
    with pytest.raises(ConfigError, match="dropout is set for a backbone that is loaded"):
        read_plan(read_recipe(RECIPES / "tiny.toml", ["model.dropout=0.0"]))
    with pytest.raises(ConfigError, match=r"dropout is 1\.5; it is the share"):
        read_plan(read_recipe(RECIPES / "encoder.toml", ["model.dropout=1.5"]))


def test_forms_are_of_a_language_that_has_a_stemmer() -> None:
    with pytest.raises(ConfigError, match="forms is 'xx'; choose one of ar, "):
        read_plan(read_recipe(RECIPES / "tiny.toml", ["model.sparse={forms = 'xx'}"]))


def test_a_folder_without_documents_has_nothing_to_count(texts: Texts, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no corpus"):
        rarity([str(tmp_path)], texts, 30522, limit=0)


def test_a_prior_needs_corpora_and_corpora_need_a_prior() -> None:
    for change in ("model.sparse={prior = true}", "model.rarity=['somewhere']"):
        with pytest.raises(ConfigError, match="give both, or neither"):
            read_plan(read_recipe(RECIPES / "tiny.toml", [change]))


def test_a_projection_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is one of \(384, 128\); the model has \(32, 16\)"):
        start_from(tiny_model(), find_model())


def test_a_model_that_was_trained_is_gone_on_from_with_all_its_weights(texts: Texts, tmp_path: Path) -> None:
    before, after = tiny_model(), tiny_model()
    for own in before.parameters():
        own.data += 1
    save(before, texts.tokenizer, tmp_path / "final")
    start_from(after, tmp_path / "final")
    assert all(torch.equal(own, after.state_dict()[name]) for name, own in before.state_dict().items())
    with pytest.raises(ConfigError, match="a model of another make"):
        start_from(tiny_model(multi=MultiHeadConfig(dim=8)), tmp_path / "final")


def test_a_projection_is_taken_over_and_its_shift_is_nothing() -> None:
    model = tiny_model(multi=MultiHeadConfig(dim=128, bias=True))
    assert model.multi is not None
    model.multi.project = torch.nn.Linear(384, 128)
    start_from(model, find_model())
    weight = model.multi.project.weight.detach().numpy()
    assert np.linalg.norm(weight, axis=1).mean() == pytest.approx(1, abs=0.1)
    assert not model.multi.project.bias.detach().any()
