"""Clients of other APIs work: the official OpenAI client, and the published requests of Cohere, Jina and TEI."""

from __future__ import annotations

import base64
import math

import numpy as np
import openai
import pytest
from starlette.testclient import TestClient

TEXTS = ["A loom crosses warp and weft.", "Vectors are combined."]


def test_encode_gives_all_kinds_in_one_answer(client: TestClient) -> None:
    answer = client.post("/v1/encode", json={"texts": TEXTS, "kind": "document"}).json()
    assert answer["model"] == "plait-small"
    assert len(answer["items"]) == 2
    assert {"dense", "multi"} <= set(answer["items"][0])
    only = client.post("/v1/encode", json={"texts": TEXTS, "kinds": ["dense"]}).json()
    assert set(only["items"][0]) == {"dense"}


def test_the_official_openai_client_gets_embeddings(client: TestClient) -> None:
    official = openai.OpenAI(api_key="unused", base_url="http://localhost/v1", http_client=client)
    made = official.embeddings.create(model="plait-small", input=TEXTS)  # asks for base64
    floats = official.embeddings.create(model="plait-small", input=TEXTS[0], encoding_format="float")
    assert np.allclose(made.data[0].embedding, floats.data[0].embedding, atol=1e-5)
    assert [one.id for one in official.models.list() if one.id == "plait-small"] == ["plait-small"]
    with pytest.raises(openai.NotFoundError, match="no encoder"):
        official.embeddings.create(model="text-embedding-3-small", input="x")
    with pytest.raises(openai.UnprocessableEntityError):
        official.embeddings.create(model="plait-small", input=[1, 2, 3])
    with pytest.raises(openai.UnprocessableEntityError, match="dimensions"):
        official.embeddings.create(model="plait-small", input="x", dimensions=7)


def test_base64_embeddings_are_little_endian_floats(client: TestClient) -> None:
    body = {"input": TEXTS, "model": "plait-small"}
    encoded = client.post("/v1/embeddings", json={**body, "encoding_format": "base64"}).json()["data"][1]["embedding"]
    plain = client.post("/v1/embeddings", json=body).json()["data"][1]["embedding"]
    assert np.allclose(np.frombuffer(base64.b64decode(encoded), "<f4"), plain, atol=1e-6)


def test_tei_embeds(client: TestClient) -> None:
    dense = client.post("/embed", json={"inputs": TEXTS, "truncate": True}).json()
    assert [round(math.sqrt(sum(value**2 for value in row)), 4) for row in dense] == [1.0, 1.0]
    single = client.post("/embed", json={"inputs": TEXTS[0]}).json()
    assert np.allclose(single[0], dense[0], atol=1e-5)
    tokens = client.post("/embed_all", json={"inputs": TEXTS}).json()
    assert len(tokens) == 2
    assert len(tokens[0]) > 1
    sparse = client.post("/embed_sparse", json={"inputs": TEXTS})
    if sparse.status_code == 200:
        assert set(sparse.json()[0][0]) == {"index", "value"}
    else:
        assert "no sparse" in sparse.json()["error"]["message"]
    assert client.get("/info").json()["model_id"] == "plait-small"


@pytest.fixture
def cross(client: TestClient) -> TestClient:
    """A client of a server that has a reranker."""
    names = [model["id"] for model in client.get("/v1/models").json()["data"] if model["kind"] == "reranker"]
    if client.post("/rerank", json={"query": "loom", "texts": ["x"]}).status_code != 200:
        pytest.skip(f"no reranker is installed: {names}")
    return client


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_cohere_and_jina_rerank(cross: TestClient, path: str) -> None:
    body = {"query": "what crosses warp and weft", "documents": [TEXTS[1], {"text": TEXTS[0]}], "top_n": 1}
    answer = cross.post(path, json={**body, "return_documents": True}).json()
    (best,) = answer["results"]
    assert best["index"] == 1
    assert best["document"] == {"text": TEXTS[0]}
    assert 0 <= best["relevance_score"] <= 1
    assert {"id", "model", "meta", "usage"} <= set(answer)


def test_tei_reranks(cross: TestClient) -> None:
    body = {"query": "what crosses warp and weft", "texts": [TEXTS[1], TEXTS[0]]}
    ranks = cross.post("/rerank", json={**body, "return_text": True, "truncate": True}).json()
    assert [rank["index"] for rank in ranks] == [1, 0]
    assert ranks[0]["text"] == TEXTS[0]
    raw = cross.post("/rerank", json={**body, "raw_scores": True}).json()
    assert [rank["index"] for rank in raw] == [1, 0]
    assert (
        ranks[0]["score"] == pytest.approx(1 / (1 + math.exp(-raw[0]["score"])), abs=1e-4) or 0 <= raw[0]["score"] <= 1
    )


def test_wrong_models_are_unknown_and_never_paths(client: TestClient) -> None:
    for path, body in (
        ("/v1/encode", {"texts": ["x"], "model": "../plait-small"}),
        ("/v1/embeddings", {"input": "x", "model": "/etc/passwd"}),
        ("/v1/rerank", {"query": "x", "documents": ["y"], "model": "http://example.org"}),
    ):
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_model")
