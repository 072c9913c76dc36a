"""Models behind HTTP: what is sent, what is believed, what is tried again, and what an error says."""

from __future__ import annotations

import email.utils
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from adapters import fakes
from adapters.server import DIM, ModelServer, answers, drips, serving
from plait.adapters import EndpointEncoder, EndpointScorer
from plait.adapters.http import JsonClient, retry_after
from plait.errors import ConfigError, ModelError, SearchTimeoutError

TEXTS = [f"text number {number}" for number in range(10)]
KEY = "sk-secret-0123456789"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving() as running:
        yield running


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a client wanted to wait; it does not."""
    seconds: list[float] = []
    monkeypatch.setattr("plait.adapters.http._sleep", seconds.append)
    return seconds


# -- TEI


def test_tei_gives_dense_vectors_in_batches_that_it_allows(server: ModelServer) -> None:
    encoder = EndpointEncoder(server.url)
    assert (encoder.name, encoder.spec.sizes()) == ("org/model", {"dense": DIM})
    server.bodies.clear()
    dense: Any = encoder.encode_documents(TEXTS).dense
    expected = np.array([server.vector(text) for text in TEXTS])
    np.testing.assert_allclose(dense, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-5)
    assert [len(body["inputs"]) for _, body in server.bodies] == [4, 4, 2]
    raw: Any = EndpointEncoder(server.url, normalize=False).encode_documents(TEXTS).dense
    np.testing.assert_allclose(raw, expected, rtol=1e-6)


def test_tei_gives_sparse_and_multi_vectors(server: ModelServer) -> None:
    sparse = EndpointEncoder(server.url, kind="sparse").encode_documents(["a b", "c"]).sparse
    assert sparse is not None
    assert [len(sparse[item][0]) for item in (0, 1)] == [2, 1]
    assert set(sparse.weights.tolist()) == {1.5}
    encoder = EndpointEncoder(server.url, kind="multi")
    multi = encoder.encode_queries(["a b", "c"]).multi
    assert multi is not None
    assert (encoder.spec.multi, multi.offsets.tolist()) == (DIM, [0, 3, 5])
    np.testing.assert_allclose(np.linalg.norm(multi.values, axis=1), 1, rtol=1e-5)
    named = EndpointEncoder(server.url, kind="sparse", tokenizer=fakes.tokenizer(), vocabulary=1000)
    assert named.spec.sparse == 1000
    assert named.term(2) == "[CLS]"


def test_prompts_and_fields_are_sent_for_their_side(server: ModelServer) -> None:
    options: dict[str, Any] = {
        "query_prompt": "query: ",
        "document_prompt": "passage: ",
        "query_fields": {"prompt_name": "q"},
        "document_fields": {"prompt_name": "d"},
        "dimensions": 6,
    }
    encoder = EndpointEncoder(server.url, **options)
    server.bodies.clear()
    encoder.encode_queries(["a"])
    encoder.encode_documents(["b"])
    queries, documents = (body for _, body in server.bodies)
    assert (queries["inputs"], queries["prompt_name"], queries["dimensions"]) == (["query: a"], "q", 6)
    assert (documents["inputs"], documents["prompt_name"]) == (["passage: b"], "d")
    plain = EndpointEncoder(server.url)
    for name, value in options.items():
        other = EndpointEncoder(server.url, **{name: value})
        assert not other.matches(plain.fingerprint), name


def test_passages_have_the_length_that_tei_tells(server: ModelServer) -> None:
    text = "bread is baked from flour and water " * 40
    by_words = [text[span.start : span.end] for span in EndpointEncoder(server.url).chunker.split("", text)]
    assert max(len(passage.split()) for passage in by_words) in range(30, 41)  # 64 tokens
    encoder = EndpointEncoder(server.url, tokenizer=fakes.tokenizer())
    by_tokens = [text[span.start : span.end] for span in encoder.chunker.split("", text)]
    assert max(len(passage.split()) for passage in by_tokens) == 60


# -- OpenAI


def test_an_openai_server_gives_vectors_as_base64_or_numbers(server: ModelServer) -> None:
    expected = np.array([server.vector(text) for text in TEXTS[:3]])
    for fields in ({}, {"encoding_format": "float"}):
        encoder = EndpointEncoder(
            f"{server.url}/v1/", model="m", normalize=False, query_fields=fields, document_fields=fields
        )
        dense: Any = encoder.encode_documents(TEXTS[:3]).dense
        np.testing.assert_allclose(dense, expected, rtol=1e-6)
    path, body = server.bodies[0]
    assert path == "/v1/embeddings"
    assert body == {"encoding_format": "base64", "model": "m", "input": body["input"]}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"data": []}, "0 embeddings for 4 texts"),
        ({"data": [{"index": 0, "embedding": [1.0]}] * 4}, "4 embeddings for 4 texts, numbered"),
        ({"data": [{"index": 0}]}, "expected an object with 'data'"),
        ({"error": "model not found"}, "model not found"),
        ([1, 2], "expected an object with 'data'"),
        ({"data": [{"index": i, "embedding": "!!"} for i in range(4)]}, "no base64 of float32"),
        ({"data": [{"index": i, "embedding": [1.0] * (i + 1)} for i in range(4)]}, "rows of one length"),
        ({"data": [{"index": i, "embedding": [None]} for i in range(4)]}, "no array of numbers"),
    ],
)
def test_wrong_openai_answers_are_refused(answer: Any, message: str) -> None:
    with serving(fault=answers(answer)) as server, pytest.raises(ModelError, match=message):
        EndpointEncoder(f"{server.url}/v1", model="m")


@pytest.mark.parametrize(
    ("kind", "answer", "message"),
    [
        ("dense", {"error": "x"}, "expected a list"),
        ("dense", [[1.0, 2.0]], r"shape \(1, 2\) for 4 texts"),
        ("dense", [[[1.0]]] * 4, r"shape \(4, 1, 1\)"),
        ("sparse", [[{"id": 1}]] * 4, "'index' and 'value'"),
        ("sparse", [[{"index": 1, "value": -1}]] * 4, "weights from -1"),
        ("multi", [[[1.0, 2.0]], [[1.0]], [[1.0]], [[1.0]]], "shapes"),
    ],
)
def test_wrong_tei_answers_are_refused(kind: Any, answer: Any, message: str) -> None:
    with serving(fault=answers(answer)) as server, pytest.raises(ModelError, match=message):
        EndpointEncoder(server.url, kind=kind)


def test_another_dimension_after_the_start_is_refused(server: ModelServer) -> None:
    encoder = EndpointEncoder(server.url)
    server.dim = DIM + 1
    with pytest.raises(ModelError, match=r"\{'dense': 7\}, but of \{'dense': 6\}"):
        encoder.encode_queries(["a"])


# -- connections


def test_one_connection_serves_many_requests_and_threads_have_their_own(server: ModelServer) -> None:
    encoder = EndpointEncoder(server.url)
    encoder.encode_documents(TEXTS)
    assert len(server.connections) == 1
    threads = [threading.Thread(target=encoder.encode_documents, args=(TEXTS,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(server.connections) <= 5
    encoder.close()
    assert encoder.encode_queries(["a"]).dense is not None


def test_a_kept_connection_that_the_server_has_closed_is_replaced(server: ModelServer, waits: list[float]) -> None:
    server.closes_after_answer = True
    encoder = EndpointEncoder(server.url, retries=0)
    for _ in range(3):
        time.sleep(0.05)  # the server closes its end
        assert encoder.encode_queries(["a"]).dense is not None
    assert waits == []


def test_a_forked_child_opens_a_connection_of_its_own(server: ModelServer) -> None:
    client = JsonClient(server.url)
    client.get("/info")
    client._process = os.getpid() + 1  # as after a fork
    client.get("/info")
    assert len(server.connections) == 2


# -- retries


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(status: int, waits: list[float]) -> None:
    with serving(fault=answers({"error": "busy"}, status, times=3)) as server:
        EndpointEncoder(server.url)
    assert len(waits) == 3
    assert 0.25 <= waits[0] <= 0.5
    assert 1.0 <= waits[2] <= 2.0


def test_a_server_says_how_long_to_wait(waits: list[float]) -> None:
    with serving(fault=answers({}, 429, times=2, Retry_After="7")) as server:
        EndpointEncoder(server.url)
    assert waits == [7.0, 7.0]
    with (
        serving(fault=answers({}, 429, Retry_After="3600")) as server,
        pytest.raises(ModelError, match="asks to wait for 3,600 s"),
    ):
        EndpointEncoder(server.url)


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after(None) is None
    assert retry_after("2.5") == 2.5
    assert retry_after("-1") == 0
    assert retry_after("nan") is None
    assert retry_after("soon") is None
    in_a_minute = email.utils.formatdate(time.time() + 60, usegmt=True)
    assert retry_after(in_a_minute) == pytest.approx(60, abs=2)


def test_a_server_that_stays_busy_is_given_up(waits: list[float]) -> None:
    with serving(fault=answers({"error": "overloaded"}, 503)) as server:
        with pytest.raises(ModelError, match=r"status 503 after 3 tries: .*overloaded"):
            EndpointEncoder(server.url, retries=2)
        assert len(server.bodies) == 3
    assert len(waits) == 2


def test_a_wrong_request_is_not_sent_again(waits: list[float]) -> None:
    with serving(fault=answers({"error": "inputs too long"}, 422)) as server:
        with pytest.raises(ModelError, match=r"status 422: .*inputs too long"):
            EndpointEncoder(server.url)
        assert len(server.bodies) == 1
    assert waits == []


# -- errors


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (b"<!doctype html><title>Login</title>", 200, "answered with HTML: .*Login"),
        (b"plain", 200, "answered with no JSON: plain"),
        (b"", 200, "answered with no JSON"),
        (b"[" * 100_000, 200, "answered with no JSON"),
        ({"error": "batch size 9 > maximum 4"}, 413, "choose a smaller batch_size .*maximum 4"),
        ({}, 404, "the server has no such path"),
        ({}, 403, "no API key was given; pass api_key"),
        (b"", 302, "redirect to http://elsewhere"),
    ],
)
def test_an_error_says_what_the_server_answered(answer: Any, status: int, message: str) -> None:
    with (
        serving(fault=answers(answer, status, Location="http://elsewhere/")) as server,
        pytest.raises(ModelError, match=message),
    ):
        EndpointEncoder(server.url, retries=0)


def test_a_server_that_is_not_tei_is_named(waits: list[float]) -> None:
    with serving() as server, pytest.raises(ModelError, match="/v2/info answered with status 404"):
        EndpointEncoder(f"{server.url}/v2")
    assert waits == []


def test_a_server_that_does_not_run_is_named(waits: list[float]) -> None:
    with serving() as server:
        url = server.url
    with pytest.raises(ModelError, match=r"cannot be reached: .*refused"):
        EndpointEncoder(url, retries=1)
    assert len(waits) == 1


def test_a_huge_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.adapters.http.MAX_ANSWER", 100_000)
    with (
        serving(fault=answers(b"[" + b" " * 300_000)) as server,
        pytest.raises(ModelError, match="sent more than 100,000 bytes"),
    ):
        EndpointEncoder(server.url)


def test_an_answer_that_drips_ends_at_the_timeout() -> None:
    with serving(fault=drips) as server:
        encoder = EndpointEncoder(server.url, timeout=0.4, retries=0)
        start = time.monotonic()
        with pytest.raises(ModelError, match=r"did not answer within 0\.4 s"):
            encoder.encode_queries(["a"])
        assert time.monotonic() - start < 5


def test_an_answer_that_ends_early_is_tried_again(waits: list[float]) -> None:
    def truncated(handler: Any, n_posts: int) -> bool:
        if handler.command != "POST" or n_posts != 1:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"[[1.0")
        handler.close_connection = True
        return True

    with serving(fault=truncated) as server:
        EndpointEncoder(server.url)
    assert len(waits) == 1


def test_a_search_ends_at_its_own_deadline(tmp_path: Path) -> None:
    with serving(fault=drips) as server:
        encoder = EndpointEncoder(server.url, timeout=30)
        with (
            plait.open(tmp_path / "index", create=True, encoder=encoder) as index,
            pytest.raises(SearchTimeoutError, match=r"within 0\.3 s"),
        ):
            index.search("a", mode="dense", timeout=0.3)


# -- the API key


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(key=KEY) as server:
        for options in ({"api_key": KEY}, {"api_key_env": "MY_KEY"}):
            encoder = EndpointEncoder(server.url, **options)  # type: ignore[arg-type]
            assert KEY not in repr(encoder) + repr(encoder._client) + encoder.fingerprint + encoder.name
        with pytest.raises(ModelError, match="no API key was given"):
            EndpointEncoder(server.url)
        with pytest.raises(ModelError, match="the API key was refused") as refused:
            EndpointEncoder(server.url, api_key=f"{KEY}-other")
        assert KEY not in str(refused.value)
        assert "***" in str(refused.value)  # the server has repeated it


def test_the_environment_is_read_only_for_the_variable_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(key=KEY) as server, pytest.raises(ModelError, match="no API key was given"):
        EndpointEncoder(f"{server.url}/v1", model="m")
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        EndpointEncoder("http://127.0.0.1:1", api_key_env="OPENAI_API_KEY")


@pytest.mark.parametrize(
    "options",
    [
        {"url": "127.0.0.1:8080"},
        {"url": "ftp://host"},
        {"url": "http://"},
        {"url": "http://host:99999"},
        {"url": "http://host/?x=1"},
        {"url": f"http://user:{KEY}@host"},
        {"url": 7},
        {"api_key": "a\n"},
        {"api_key": "a", "api_key_env": "B"},
        {"timeout": 0},
        {"timeout": True},
        {"retries": -1},
        {"api": "grpc"},
        {"api": "openai"},
        {"model": "m", "kind": "sparse"},
        {"kind": "all"},
        {"query_prompt": None},
    ],
)
def test_wrong_options_are_refused_before_a_request(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        EndpointEncoder(**({"url": "http://127.0.0.1:1"} | options))
    assert KEY not in str(refused.value)


# -- fingerprints


def test_another_model_behind_the_same_url_is_refused_and_noise_is_not(server: ModelServer) -> None:
    stored = EndpointEncoder(server.url).fingerprint
    server.noise = 5e-3
    again = EndpointEncoder(server.url)
    assert again.fingerprint != stored
    assert again.matches(stored)
    server.noise, server.seed = 0, 1
    assert not EndpointEncoder(server.url).matches(stored)
    server.seed = 0
    assert EndpointEncoder(server.url).matches(stored)
    server.sha = "def456"
    assert not EndpointEncoder(server.url).matches(stored)


def test_the_name_of_an_openai_model_is_part_of_its_fingerprint(server: ModelServer) -> None:
    stored = EndpointEncoder(f"{server.url}/v1", model="m").fingerprint
    assert EndpointEncoder(f"{server.url}/v1", model="m").matches(stored)
    assert not EndpointEncoder(f"{server.url}/v1", model="n").matches(stored)


# -- rerankers


def test_a_reranker_scores_each_query_with_its_texts(server: ModelServer) -> None:
    pairs = [("a b", "a b c"), ("x", "y"), ("a b", "b"), ("x", "x y")]
    for scorer in (EndpointScorer(server.url), EndpointScorer(f"{server.url}/v1", model="m")):
        server.bodies.clear()
        assert scorer.score(pairs).tolist() == [2.0, 0.0, 1.0, 1.0]
        assert sorted(body["query"] for _, body in server.bodies) == ["a b", "x"]
    assert EndpointScorer(server.url).fingerprint == EndpointScorer(server.url).fingerprint
    before = EndpointScorer(server.url).fingerprint
    server.sha = "def456"
    assert EndpointScorer(server.url).fingerprint != before


@pytest.mark.parametrize(
    "answer",
    [
        [{"index": 0, "score": 1.0}],
        [{"index": 0, "score": 1.0}, {"index": 0, "score": 1.0}],
        [{"index": 0, "score": 1.0}, {"index": 1, "score": None}],
        [{"index": 0, "score": 1.0}, {"index": 1, "score": 1.0}, {"index": 2, "score": 1.0}],
        {"results": None},
        "text",
    ],
)
def test_wrong_answers_of_a_reranker_are_refused(answer: Any) -> None:
    with serving(fault=answers(answer)) as server, pytest.raises(ModelError, match="/rerank answered"):
        EndpointScorer(server.url).score([("a", "b"), ("a", "c")])


def test_wrong_options_of_a_reranker_are_refused() -> None:
    for options in ({"api": "cohere"}, {"api": "bing"}, {"url": "host"}):
        with pytest.raises(ConfigError):
            EndpointScorer(**({"url": "http://127.0.0.1:1"} | options))  # type: ignore[arg-type]
