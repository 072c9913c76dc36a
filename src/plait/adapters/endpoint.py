"""`EndpointEncoder`: a model behind HTTP as an encoder: Hugging Face's text-embeddings-inference (TEI), and any server
with the embeddings API of OpenAI."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np

from plait.adapters.fingerprints import sketch_fingerprint
from plait.adapters.function import MAX_VOCABULARY, Kind, check_kind, given_tokenizer, read_output
from plait.adapters.http import JsonClient
from plait.adapters.live import DEFAULT_BATCH, GuardedModel, LiveEncoder
from plait.adapters.tokenizer import passage_chunker
from plait.checks import check_flag, check_type, shown
from plait.embeddings import Embeddings
from plait.errors import ConfigError, ModelError

Api = Literal["tei", "openai"]
TEI_PATHS: dict[Kind, str] = {"dense": "/embed", "sparse": "/embed_sparse", "multi": "/embed_all"}
MULTI_BATCH = 8  # texts; all vectors of all tokens come as JSON


class EndpointEncoder(LiveEncoder):
    """Encodes with a model behind HTTP.

    Without a `model`, the server is TEI: `kind` chooses among /embed (dense), /embed_sparse and /embed_all (multi).
    With the name of a `model`, the server has OpenAI's API, and `url` ends before /embeddings, as in "https://host/v1".

    `query_prompt` and `document_prompt` are put before the texts. `query_fields` and `document_fields` are more fields
    of the request, such as {"prompt_name": "query"} or {"input_type": "query"}. `dimensions` asks for shorter vectors.
    The API key is given as `api_key`, or in the environment variable that `api_key_env` names. `length` is the number
    of tokens that the model reads; TEI says it. `tokenizer` (of transformers, of tokenizers, or a tokenizer.json file)
    counts them; without it, words are counted.

    The index remembers the name of the model and the embeddings of fixed texts, and refuses another model behind the
    same URL.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api: Api | None = None,
        kind: Kind = "dense",
        api_key: str | None = None,
        api_key_env: str | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        query_prompt: str = "",
        document_prompt: str = "",
        query_fields: Mapping[str, Any] | None = None,
        document_fields: Mapping[str, Any] | None = None,
        vocabulary: int | None = None,
        tokenizer: object = None,
        length: int | None = None,
        passage_tokens: int | None = None,
        batch_size: int | None = None,
        timeout: float = 60.0,
        retries: int = 4,
    ) -> None:
        check_flag("normalize", normalize)
        check_kind(kind)
        api = check_api(api, model, kind)
        prompts = {True: query_prompt, False: document_prompt}
        fields = {True: dict(query_fields or {}), False: dict(document_fields or {})}
        for prompt in prompts.values():
            check_type("a prompt", prompt, str, "text", ConfigError)
        client = JsonClient(url, api_key=api_key, api_key_env=api_key_env, timeout=timeout, retries=retries)
        facts = tei_info(client) if api == "tei" else {}
        name = model or str(facts.get("model_id") or client.url)
        options = {} if dimensions is None else {"dimensions": dimensions}
        where = f"{name} at {client.url}"

        def encode(texts: list[str], is_query: bool) -> Embeddings:
            texts = [prompts[is_query] + text for text in texts]
            if api == "tei":
                value = _tei_embeddings(client, kind, texts, options | fields[is_query])
            else:
                value = _openai_embeddings(client, texts, {"model": model} | options | fields[is_query])
            return read_output(value, kind, len(texts), where, normalize=normalize and kind != "sparse")[0]

        guarded = GuardedModel(encode, concurrent=True)  # HTTP servers take requests side by side
        probe = guarded.probe()
        settings = {
            "api": api,
            "kind": kind,
            "normalize": normalize,
            "options": options,
            "prompts": [query_prompt, document_prompt],
            "fields": [fields[True], fields[False]],
            "model": [facts.get("model_id"), facts.get("model_sha")],
        }
        counter = None if tokenizer is None else given_tokenizer(tokenizer)
        n_added = 0 if counter is None else counter.n_special + counter.count(document_prompt)
        if kind == "sparse" and vocabulary is None:
            vocabulary = MAX_VOCABULARY if counter is None else counter.n_tokens
        if batch_size is None:
            batch_size = _batch_size(kind, facts)
        super().__init__(
            guarded,
            name=name,
            spec=probe.spec(vocabulary=vocabulary, model=where),
            fingerprint=sketch_fingerprint(api, name, settings, probe.documents, probe.queries),
            chunker=passage_chunker(
                counter,
                length=length or facts.get("max_input_length"),
                n_added=n_added,
                passage_tokens=passage_tokens,
            ),
            batch_size=batch_size,
            read_term=counter.token if counter is not None and kind == "sparse" else None,
        )
        self._client = client

    def close(self) -> None:
        """Closes idle connections."""
        self._client.close()


def check_api(api: Api | None, model: str | None, kind: Kind) -> Api:
    """The API of a server: OpenAI's if a model is named, else that of TEI."""
    if model is not None:
        check_type("model", model, str, "the name of a model", ConfigError)
    api = ("openai" if model else "tei") if api is None else api
    if api not in get_args(Api):
        raise ConfigError(f"api is {shown(api)}; it must be one of {', '.join(get_args(Api))}")
    if api == "openai" and not model:
        raise ConfigError("an endpoint with OpenAI's API needs the name of the model: model='text-embedding-3-small'")
    if api == "openai" and kind != "dense":
        raise ConfigError(f"kind is {kind!r}, and OpenAI's API has dense vectors only; TEI has the others")
    return api


def tei_info(client: JsonClient) -> dict[str, Any]:
    """What a TEI server says of its model."""
    facts = client.get("/info")
    if not isinstance(facts, dict) or "model_id" not in facts:
        raise ModelError(
            f"{client.url}/info answered {shown(facts)}, which is no answer of TEI; for a server with OpenAI's API "
            f"give the name of the model"
        )
    return facts


def _batch_size(kind: Kind, facts: Mapping[str, Any]) -> int:
    size = MULTI_BATCH if kind == "multi" else DEFAULT_BATCH
    most = facts.get("max_client_batch_size")
    return min(size, most) if isinstance(most, int) and most > 0 else size


def _tei_embeddings(client: JsonClient, kind: Kind, texts: list[str], fields: dict[str, Any]) -> Any:
    body = {"inputs": texts, "truncate": True, **fields}
    if kind == "dense":
        body.setdefault("normalize", False)  # plait does it, where it is wanted
    answer = client.post(TEI_PATHS[kind], body)
    if not isinstance(answer, list):
        raise ModelError(f"{client.url}{TEI_PATHS[kind]} answered {shown(answer)}; expected a list for each text")
    if kind != "sparse":
        return answer
    try:
        return [{entry["index"]: entry["value"] for entry in item} for item in answer]
    except (TypeError, KeyError):
        raise ModelError(
            f"{client.url}/embed_sparse answered {shown(answer)}; expected lists of objects with 'index' and 'value'"
        ) from None


def _openai_embeddings(client: JsonClient, texts: list[str], fields: dict[str, Any]) -> list[Any]:
    # base64 is a quarter of the size; a server that does not know it sends numbers.
    answer = client.post("/embeddings", {"encoding_format": "base64", **fields, "input": texts})
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(item, dict) and "embedding" in item for item in data):
        raise ModelError(
            f"{client.url}/embeddings answered {shown(answer, 200)}; expected an object with 'data', a list of objects "
            f"with 'embedding'"
        )
    by_index = {item.get("index", position): item["embedding"] for position, item in enumerate(data)}
    if len(data) != len(texts) or sorted(by_index, key=str) != sorted(range(len(texts)), key=str):
        raise ModelError(
            f"{client.url}/embeddings answered with {len(data)} embeddings for {len(texts)} texts, numbered "
            f"{shown(sorted(by_index, key=str))}"
        )
    return [_numbers(by_index[position], client) for position in range(len(texts))]


def _numbers(embedding: object, client: JsonClient) -> object:
    """The numbers of an embedding; base64 holds float32 of little end first."""
    if not isinstance(embedding, str):
        return embedding
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    except (binascii.Error, ValueError):
        raise ModelError(
            f"{client.url}/embeddings sent an embedding that is no base64 of float32: {shown(embedding)}"
        ) from None
