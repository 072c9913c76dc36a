"""A fingerprint is the same in every process, differs for other weights and settings, and bears noise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adapters import fakes
from plait.adapters import BGEM3Encoder, FunctionEncoder, PyLateEncoder, SentenceTransformerEncoder
from plait.adapters.fingerprints import same_fingerprint, sketch_fingerprint, weights_digest
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.errors import ModelError

TESTS = Path(__file__).parents[1]

Make = Callable[[], Any]
WRAPPED: dict[str, Make] = {
    "dense": lambda: SentenceTransformerEncoder(fakes.dense_model()),
    "sparse": lambda: SentenceTransformerEncoder(fakes.sparse_model()),
    "multi": lambda: SentenceTransformerEncoder(fakes.multi_model()),
    "pylate": lambda: PyLateEncoder(fakes.ColBERT()),
    "bge-m3": lambda: BGEM3Encoder(fakes.BGEM3FlagModel()),
    "function": lambda: FunctionEncoder(lambda texts: [[len(text), text.count("e")] for text in texts], name="letters"),
}


def noisy(rows: Any, noise: float) -> Embeddings:
    rng = np.random.default_rng(int(noise * 1e6))
    return Embeddings(dense=(rows + noise * rng.standard_normal(rows.shape)).astype(np.float32))


def probe_rows(seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((4, 96)).astype(np.float32)


def sketched(embeddings: Embeddings, name: str = "m", **settings: Any) -> str:
    return sketch_fingerprint("test", name, settings, embeddings, embeddings)


@pytest.mark.parametrize("name", WRAPPED)
def test_a_fingerprint_is_the_same_in_another_process(name: str) -> None:
    code = f"from adapters.test_fingerprints import WRAPPED; print(WRAPPED[{name!r}]().fingerprint)"
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": str(TESTS), "PATH": ""}
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=TESTS
    )
    assert answer.stdout.strip() == WRAPPED[name]().fingerprint
    assert WRAPPED[name]().matches(answer.stdout.strip())


def change_weight(model: Any) -> None:
    model.state_dict()["0.embedding.weight"][3, 2] += 0.01


@pytest.mark.parametrize(
    "change",
    [
        change_weight,
        lambda model: model.prompts.update(query="query: "),
        lambda model: model.prompts.update(document="passage: "),
        lambda model: setattr(model[0], "max_seq_length", 15),
        lambda model: setattr(model[1], "pooling_mode", "cls"),
        lambda model: setattr(model, "similarity_fn_name", "dot"),
        lambda model: setattr(model, "truncate_dim", 4),
        lambda model: model[0].tokenizer.backend_tokenizer.add_tokens(["newword"]),
    ],
    ids=["weight", "query prompt", "document prompt", "length", "pooling", "similarity", "truncation", "tokenizer"],
)
def test_a_change_of_weights_or_settings_changes_the_fingerprint(change: Callable[[Any], object]) -> None:
    changed = fakes.dense_model()
    change(changed)
    before = SentenceTransformerEncoder(fakes.dense_model())
    assert SentenceTransformerEncoder(changed).fingerprint != before.fingerprint
    assert not SentenceTransformerEncoder(changed).matches(before.fingerprint)


def test_the_query_prompt_and_the_document_prompt_are_not_confused() -> None:
    one = fakes.dense_model(prompts={"query": "find: ", "document": ""})
    other = fakes.dense_model(prompts={"query": "", "document": "find: "})
    assert SentenceTransformerEncoder(one).fingerprint != SentenceTransformerEncoder(other).fingerprint


def test_a_model_has_one_digest_in_single_and_half_precision() -> None:
    digest = weights_digest(fakes.Transformer())
    assert weights_digest(fakes.Transformer().half()) == digest
    assert weights_digest(fakes.Transformer().double()) == digest
    assert weights_digest(fakes.Transformer(1)) != digest


def test_wrappers_around_a_model_do_not_change_its_digest() -> None:
    class Compiled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._orig_mod = fakes.Transformer()

    assert weights_digest(Compiled()) == weights_digest(fakes.Transformer())


def test_a_weight_that_moves_to_another_name_or_shape_changes_the_digest() -> None:
    one, renamed, reshaped = torch.nn.Linear(2, 2, bias=False), torch.nn.Module(), torch.nn.Module()
    renamed.kernel = torch.nn.Parameter(one.weight.detach().clone())
    reshaped.weight = torch.nn.Parameter(one.weight.detach().reshape(1, 4))
    assert len({weights_digest(model) for model in (one, renamed, reshaped)}) == 3


def test_a_large_model_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.adapters.fingerprints.MAX_HASHED_VALUES", 100)
    digest = weights_digest(fakes.Transformer())
    assert digest == weights_digest(fakes.Transformer())
    assert digest != weights_digest(fakes.Transformer(1))


@pytest.mark.parametrize("model", [None, torch.nn.Identity(), object()])
def test_an_object_without_weights_has_no_digest(model: object) -> None:
    assert weights_digest(model) is None


def test_the_noise_of_other_hardware_does_not_change_a_sketch_but_another_model_does() -> None:
    rows = probe_rows()
    stored = sketched(noisy(rows, 0))
    for noise in (1e-6, 1e-4, 1e-3, 1e-2):
        assert same_fingerprint(stored, sketched(noisy(rows, noise)))
    assert not same_fingerprint(stored, sketched(noisy(rows, 0.2)))
    assert not same_fingerprint(stored, sketched(noisy(probe_rows(1), 0)))


def test_noise_that_changes_the_digits_of_a_fingerprint_was_tested() -> None:
    assert sketched(noisy(probe_rows(), 0)) != sketched(noisy(probe_rows(), 1e-2))


def test_name_and_settings_are_compared_exactly() -> None:
    stored = sketched(noisy(probe_rows(), 0), prompt="a")
    assert same_fingerprint(stored, sketched(noisy(probe_rows(), 0), prompt="a"))
    assert not same_fingerprint(stored, sketched(noisy(probe_rows(), 0), prompt="b"))
    assert not same_fingerprint(stored, sketched(noisy(probe_rows(), 0), name="n", prompt="a"))


@pytest.mark.parametrize("stored", ["", "arrays", ":~", "live:test:m:0:~", "live:test:m:0:~!!!", "live:test:m:0:~AAAA"])
def test_a_damaged_fingerprint_is_of_no_model(stored: str) -> None:
    current = sketched(noisy(probe_rows(), 0))
    assert not same_fingerprint(current, stored)
    assert not same_fingerprint(current, current[:-8])


def test_sketches_of_every_kind_tell_models_from_each_other() -> None:
    def sparse(seed: int) -> Embeddings:
        rng = np.random.default_rng(seed)
        return Embeddings(sparse=SparseVectors.from_items([{int(term): 1.0 for term in rng.integers(0, 999, 20)}] * 4))

    def multi(seed: int) -> Embeddings:
        rows = np.random.default_rng(seed).standard_normal((5, 16)).astype(np.float32)
        return Embeddings(multi=MultiVectors.from_items([rows] * 4))

    for make in (sparse, multi):
        assert same_fingerprint(sketched(make(0)), sketched(make(0)))
        assert not same_fingerprint(sketched(make(0)), sketched(make(1)))


def test_a_model_that_gives_only_zeros_is_refused() -> None:
    with pytest.raises(ModelError, match="only zeros"):
        FunctionEncoder(lambda texts: np.zeros((len(texts), 4)), name="empty")
