"""An index with a live encoder, end to end: add, search in every mode, open again, refuse another encoder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plait
from adapters import fakes
from adapters.server import serving
from plait.adapters import BGEM3Encoder, EndpointEncoder, FunctionEncoder, PyLateEncoder, SentenceTransformerEncoder
from plait.errors import EncoderMismatchError, ModelError

DOCUMENTS = [
    {"id": "heart", "text": "the heart pumps blood through the body"},
    {"id": "bread", "text": "bread is baked from flour, water and yeast"},
    {"id": "pip", "text": "how do i install a package with pip", "title": "python"},
    {"id": "long", "text": "a library lends books ; a shop sells them . " * 20},
]

Make = Callable[[int], Any]  # the seed of the weights
ENCODERS: dict[str, Make] = {
    "dense": lambda seed: SentenceTransformerEncoder(fakes.dense_model(seed)),
    "sparse": lambda seed: SentenceTransformerEncoder(fakes.sparse_model(seed)),
    "multi": lambda seed: SentenceTransformerEncoder(fakes.multi_model(seed)),
    "pylate": lambda seed: PyLateEncoder(fakes.ColBERT(seed)),
    "bge-m3": lambda seed: BGEM3Encoder(fakes.BGEM3FlagModel(seed)),
    "function": lambda seed: FunctionEncoder(
        lambda texts: fakes.dense_model(seed).encode(texts, show_progress_bar=False), name="m", length=16
    ),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_documents_are_found_in_every_mode_and_after_opening_again(name: str, tmp_path: Path) -> None:
    encoder = ENCODERS[name](0)
    modes = ["bm25", "hybrid", *encoder.spec.sizes()]
    with plait.open(tmp_path / "index", encoder=encoder, create=True) as index:
        report = index.add(DOCUMENTS)
        assert report.passages > len(DOCUMENTS)
        assert report.truncated == 0
        ids_by_mode = {mode: [hit.id for hit in index.search(DOCUMENTS[0]["text"], k=3, mode=mode)] for mode in modes}
        assert {mode: ids[0] for mode, ids in ids_by_mode.items()} == dict.fromkeys(modes, "heart")
        assert index.add(DOCUMENTS).unchanged == len(DOCUMENTS)
    with plait.open(tmp_path / "index", encoder=ENCODERS[name](0)) as index:
        for mode in modes:
            hits = index.search(DOCUMENTS[0]["text"], k=3, mode=mode, explain=True)
            assert [hit.id for hit in hits] == ids_by_mode[mode]
            assert hits[0].explanation is not None


@pytest.mark.parametrize("name", ENCODERS)
def test_another_encoder_is_refused(name: str, tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", encoder=ENCODERS[name](0), create=True) as index:
        index.add(DOCUMENTS)
    with pytest.raises(EncoderMismatchError, match="cannot be compared"):
        plait.open(tmp_path / "index", encoder=ENCODERS[name](1))
    with pytest.raises(EncoderMismatchError):
        plait.open(tmp_path / "index", model="plait-small")


def test_an_index_opens_without_its_live_encoder_and_says_what_is_missing(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", encoder=ENCODERS["dense"](0), create=True) as index:
        index.add(DOCUMENTS)
    with plait.open(tmp_path / "index") as index:
        assert index.search("flour yeast", mode="bm25")[0].id == "bread"
        assert index.info().fingerprint.startswith("live:sentence-transformers:")
        with pytest.raises(ModelError, match=r"live encoder SentenceTransformer .*pass encoder="):
            index.search("flour yeast", mode="dense")


def test_a_function_with_the_name_of_a_bundled_model_does_not_load_that_model(tmp_path: Path) -> None:
    encoder = FunctionEncoder(lambda texts: [[float(len(text)), 1.0] for text in texts], name="plait-small")
    with plait.open(tmp_path / "index", encoder=encoder, create=True) as index:
        index.add(DOCUMENTS[:1])
    with plait.open(tmp_path / "index") as index, pytest.raises(ModelError, match="pass encoder="):
        index.search("heart", mode="dense")


def test_explanations_name_tokens_and_terms(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", encoder=ENCODERS["bge-m3"](0), create=True) as index:
        index.add(DOCUMENTS)
        multi = index.explain("blood", "heart", mode="multi").multi
        assert multi is not None
        assert [match.token for match in multi.matches if match.query == "blood"] == ["blood"]
        sparse = index.explain("blood", "heart", mode="sparse").sparse
        assert sparse is not None
        assert [match.surface for match in sparse] == ["blood"]
    with plait.open(tmp_path / "terms", encoder=ENCODERS["sparse"](0), create=True) as index:
        index.add(DOCUMENTS)
        sparse = index.explain("blood", "heart", mode="sparse").sparse
        assert sparse is not None
        assert [match.surface for match in sparse] == ["blood"]


@pytest.mark.parametrize("kind", ["dense", "sparse", "multi"])
def test_an_index_with_an_endpoint_bears_noise_and_refuses_another_model(kind: Any, tmp_path: Path) -> None:
    with serving() as server:
        with plait.open(tmp_path / "index", encoder=EndpointEncoder(server.url, kind=kind), create=True) as index:
            index.add(DOCUMENTS)
            assert index.search(DOCUMENTS[0]["text"], k=1, mode=kind)[0].id == "heart"
        server.noise = 1e-4
        with plait.open(tmp_path / "index", encoder=EndpointEncoder(server.url, kind=kind)) as index:
            assert index.search(DOCUMENTS[0]["text"], k=1, mode=kind)[0].id == "heart"
        server.noise, server.seed = 0.0, 1
        with pytest.raises(EncoderMismatchError):
            plait.open(tmp_path / "index", encoder=EndpointEncoder(server.url, kind=kind))


def test_importing_the_adapters_loads_no_model_library() -> None:
    code = "import plait.adapters, sys; print('\\n'.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "transformers", "tokenizers", "onnxruntime", "sentence_transformers", "pylate", "FlagEmbedding"}
    assert heavy.isdisjoint(answer.stdout.split())
