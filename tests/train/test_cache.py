"""Frozen lower layers from disk give what they give when they are computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from plait.errors import ConfigError
from plait.train.frozen_layers import CachedModel, StateCache
from train.small import SmallModel, SmallTexts

TEXTS = ["one two three", "four", "five six seven eight"]


def make(tmp_path: Path, model: SmallModel, dtype: str = "float32") -> CachedModel:
    return CachedModel(model, StateCache(tmp_path, fingerprint="small", hidden=16, dtype=dtype), layers=1)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 2e-3)])
def test_a_cached_model_encodes_as_the_model_does(tmp_path: Path, dtype: str, tolerance: float) -> None:
    model = SmallModel()
    expected = model(SmallTexts().documents(TEXTS), is_query=False)
    for _ in range(2):
        cached = make(tmp_path, model, dtype)
        found = cached(SmallTexts().documents(TEXTS), is_query=False)
        torch.testing.assert_close(found.dense, expected.dense, rtol=0, atol=tolerance)
        torch.testing.assert_close(found.multi, expected.multi, rtol=0, atol=10 * tolerance)


def test_the_lower_layers_run_once_for_each_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, n_computed = SmallModel(), 0
    states = model.backbone.states

    def counted(tokens, *, upto):  # type: ignore[no-untyped-def]
        nonlocal n_computed
        n_computed += len(tokens.ids)
        return states(tokens, upto=upto)

    monkeypatch.setattr(model.backbone, "states", counted)
    cached = make(tmp_path, model)
    cached(SmallTexts().documents(TEXTS), is_query=False)
    cached(SmallTexts().queries([*TEXTS, "a new one"]), is_query=True)
    make(tmp_path, model)(SmallTexts().documents(TEXTS), is_query=False)
    assert n_computed == 4


def test_gradients_reach_the_top_and_not_the_bottom(tmp_path: Path) -> None:
    model = SmallModel()
    found = make(tmp_path, model)(SmallTexts().documents(TEXTS), is_query=False)
    assert found.dense is not None
    found.dense[:, 0].sum().backward()
    layers = model.backbone.layers
    assert layers[1].weight.grad is not None
    assert layers[0].weight.grad is None


def test_rows_that_a_killed_run_did_not_name_are_cut_off(tmp_path: Path) -> None:
    cache = StateCache(tmp_path, fingerprint="x", hidden=4, dtype="float32")
    cache.put([(b"one", np.ones((2, 4), np.float32))])
    cache.close()
    (file,) = tmp_path.glob("*.states")
    with file.open("ab") as stream:
        stream.write(b"half a row")
    cache = StateCache(tmp_path, fingerprint="x", hidden=4, dtype="float32")
    cache.put([(b"two", np.full((1, 4), 2, np.float32))])
    one, two = cache.get([b"one", b"two"])
    assert one is not None
    assert two is not None
    assert one.tolist() == [[1.0] * 4] * 2
    assert two.tolist() == [[2.0] * 4]


def test_another_fingerprint_finds_nothing(tmp_path: Path) -> None:
    StateCache(tmp_path, fingerprint="x", hidden=4).put([(b"one", np.ones((2, 4)))])
    assert StateCache(tmp_path, fingerprint="y", hidden=4).get([b"one"]) == [None]
    with pytest.raises(ConfigError, match="choose one of float16, float32"):
        StateCache(tmp_path, fingerprint="x", hidden=4, dtype="int8")
