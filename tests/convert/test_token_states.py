"""Token states of dense models as multi vectors. The conversion itself compares them with the source model."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from plait.convert.checkpoint import Overrides
from plait.convert.convert import convert
from plait.encode.load import load_model
from plait.encode.model_card import ModelCard
from plait.errors import ConfigError

CHECKPOINTS = Path(__file__).parent / "checkpoints"
STATES = Overrides(token_states=True)


@pytest.mark.parametrize("name", ["st-bert-mean", "transformers-bert", "fastembed-bge-tiny"])
def test_a_dense_model_gives_its_token_states(tmp_path: Path, name: str) -> None:
    source = shutil.copytree(CHECKPOINTS / name, tmp_path / name)
    made = convert(source, tmp_path / "model", precision="both", overrides=STATES)
    assert isinstance(made.card, ModelCard)
    assert made.card.dense is not None
    assert made.card.multi is not None
    assert made.card.multi.dim == made.card.dense.dim
    assert all("multi" in parity.differences for parity in made.parity.values()), "the states were not compared"
    plain = convert(source, tmp_path / "plain", precision="fp32")
    assert plain.card.fingerprint != made.card.fingerprint
    encoder = load_model(tmp_path / "model", precision="fp32")
    embeddings = encoder.encode_documents(["wool is spun", "linen, of flax"])
    assert embeddings.dense is not None
    assert embeddings.multi is not None
    np.testing.assert_allclose(np.linalg.norm(embeddings.multi.values, axis=1), 1, atol=1e-5)
    expected = load_model(tmp_path / "plain", precision="fp32").encode_documents(["wool is spun", "linen, of flax"])
    assert expected.dense is not None
    np.testing.assert_allclose(embeddings.dense, expected.dense, atol=1e-5)


@pytest.mark.parametrize("name", ["pylate-bert", "st-splade-bert", "st-cross-bert", "st-static"])
def test_other_models_are_refused(tmp_path: Path, name: str) -> None:
    source = shutil.copytree(CHECKPOINTS / name, tmp_path / name)
    with pytest.raises(ConfigError, match="no token states"):
        convert(source, tmp_path / "model", overrides=STATES)
    assert not (tmp_path / "model").exists()
