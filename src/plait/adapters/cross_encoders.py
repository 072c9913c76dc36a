"""Cross-encoders that other libraries or servers run, as a `PairScorer`: pass one as `rerank=` of a search, or to
`plait.Reranker` with a depth and a blend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np

from plait.adapters.fingerprints import module_settings, weights_digest, weights_fingerprint
from plait.adapters.function import check_name
from plait.adapters.http import JsonClient
from plait.adapters.live import DEFAULT_BATCH, check_texts
from plait.adapters.outputs import Floats, pair_scores
from plait.adapters.sentence_transformer import MODULE_SETTINGS
from plait.adapters.token_rows import model_name
from plait.adapters.tokenizer import find_tokenizer, usable_length
from plait.checks import as_list, check_count, check_flag, shown
from plait.encode.batches import by_length
from plait.encode.protocol import OnBatch
from plait.errors import ConfigError, InputError, ModelError
from plait.locks import ForkSafeLock
from plait.rerank.pairs import Pair

ScoreBatch = Callable[[list[Pair]], Any]  # pairs -> one score for each
BATCH_CHARACTERS = 1 << 16
RerankApi = Literal["tei", "cohere"]
MAX_DOCUMENTS = 32  # of one request, where the server does not say


class LiveScorer:
    """A pair scorer over a live model; the adapters make one."""

    def __init__(
        self, score: ScoreBatch, *, name: str, fingerprint: str, batch_size: int = DEFAULT_BATCH, concurrent: bool
    ) -> None:
        check_count("batch_size", batch_size)
        check_flag("concurrent", concurrent)
        self.name, self.fingerprint = name, fingerprint
        self._score, self._batch_size = score, batch_size
        self._lock = None if concurrent else ForkSafeLock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> Floats:
        """One score for each (query, document); higher is better."""
        pairs = as_list("pairs", pairs, "pairs of a query and a document")
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InputError(f"a pair is {shown(pair)}; it must be (query, document)")
            check_texts(pair)
        scores = np.zeros(len(pairs), np.float32)
        n_done = 0
        for items in self._batches(pairs):
            scores[items] = pair_scores(self._locked([tuple(pairs[item]) for item in items]), len(items), self.name)
            n_done += len(items)
            if on_batch is not None:
                on_batch(n_done, len(pairs))
        return scores

    def _locked(self, pairs: list[Any]) -> Any:
        if self._lock is None:
            return self._score(pairs)
        with self._lock:
            return self._score(pairs)

    def _batches(self, pairs: Sequence[Pair]) -> Iterator[list[int]]:
        for items in by_length([len(query) + len(text) for query, text in pairs], n_tokens=BATCH_CHARACTERS):
            yield from (items[start : start + self._batch_size] for start in range(0, len(items), self._batch_size))


class CrossEncoderScorer(LiveScorer):
    """Scores with a `CrossEncoder` of sentence-transformers that the caller has loaded."""

    def __init__(
        self, model: Any, *, name: str | None = None, batch_size: int = DEFAULT_BATCH, concurrent: bool = False
    ) -> None:
        if not hasattr(model, "predict"):
            raise ConfigError(f"the model is {shown(model)}; CrossEncoderScorer takes a loaded CrossEncoder")
        if getattr(model, "num_labels", 1) != 1:
            raise ConfigError(
                f"the cross-encoder gives {model.num_labels} labels for a pair; one for ranking gives a single score"
            )
        # Before version 4 the CrossEncoder was no module, but held one.
        weights = weights_digest(model) or weights_digest(getattr(model, "model", None))
        settings = {
            "length": usable_length(getattr(model, "max_seq_length", None), default=0),
            "activation": type(getattr(model, "activation_fn", None)).__name__,
            "prompts": getattr(model, "prompts", None),
            "modules": module_settings(model, MODULE_SETTINGS, ("sentence_transformers",))
            if hasattr(model, "modules")
            else None,
        }

        def score(pairs: list[Pair]) -> Any:
            return model.predict(pairs, batch_size=len(pairs), show_progress_bar=False, convert_to_numpy=True)

        name = model_name(model) if name is None else name
        fingerprint = _local_fingerprint("cross-encoder", model, name, weights, settings)
        super().__init__(score, name=name, fingerprint=fingerprint, batch_size=batch_size, concurrent=concurrent)


class FlagRerankerScorer(LiveScorer):
    """Scores with a `FlagReranker` of FlagEmbedding that the caller has loaded."""

    def __init__(
        self, model: Any, *, name: str | None = None, batch_size: int = DEFAULT_BATCH, concurrent: bool = False
    ) -> None:
        if not hasattr(model, "compute_score"):
            raise ConfigError(f"the model is {shown(model)}; FlagRerankerScorer takes a loaded FlagReranker")
        members = (
            "max_length",
            "query_max_length",
            "normalize",
            "query_instruction_for_rerank",
            "query_instruction_format",
            "passage_instruction_for_rerank",
            "passage_instruction_format",
        )
        settings = {member: getattr(model, member, None) for member in members}

        def score(pairs: list[Pair]) -> Any:
            return model.compute_score(pairs, batch_size=len(pairs) + 1)

        name = model_name(model) if name is None else name
        weights = weights_digest(getattr(model, "model", None))
        fingerprint = _local_fingerprint("flag-reranker", model, name, weights, settings)
        super().__init__(score, name=name, fingerprint=fingerprint, batch_size=batch_size, concurrent=concurrent)


class FunctionScorer(LiveScorer):
    """Scores with any callable from a list of (query, document) pairs to scores. `name` identifies the model."""

    def __init__(
        self, function: ScoreBatch, *, name: str, batch_size: int = DEFAULT_BATCH, concurrent: bool = False
    ) -> None:
        check_name(name)
        if not callable(function):
            raise ConfigError(f"the function is {shown(function)}; it must be a callable from pairs to scores")
        fingerprint = weights_fingerprint("function", name, {})
        super().__init__(function, name=name, fingerprint=fingerprint, batch_size=batch_size, concurrent=concurrent)


class EndpointScorer(LiveScorer):
    """Scores with a reranker behind HTTP: TEI, or with a `model` a server with Cohere's API, such as those of Cohere,
    Jina, vLLM; `url` ends before /rerank."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api: RerankApi | None = None,
        api_key: str | None = None,
        api_key_env: str | None = None,
        batch_size: int | None = None,
        timeout: float = 60.0,
        retries: int = 4,
    ) -> None:
        api = ("cohere" if model else "tei") if api is None else api
        if api not in get_args(RerankApi):
            raise ConfigError(f"api is {shown(api)}; it must be one of {', '.join(get_args(RerankApi))}")
        if api == "cohere" and not model:
            raise ConfigError("a reranker with Cohere's API needs the name of the model: model='rerank-v3.5'")
        client = JsonClient(url, api_key=api_key, api_key_env=api_key_env, timeout=timeout, retries=retries)
        facts = client.get("/info") if api == "tei" else {}
        if not isinstance(facts, dict):
            raise ModelError(f"{client.url}/info answered {shown(facts)}, which is no answer of TEI")
        name = model or str(facts.get("model_id") or client.url)
        most = facts.get("max_client_batch_size")

        def score(pairs: list[Pair]) -> Any:
            scores = np.zeros(len(pairs))
            for query, items in _by_query(pairs).items():
                texts = [pairs[item][1] for item in items]
                if api == "tei":
                    answer = client.post(
                        "/rerank", {"query": query, "texts": texts, "raw_scores": True, "truncate": True}
                    )
                else:
                    answer = client.post("/rerank", {"model": model, "query": query, "documents": texts})
                scores[items] = _ranked_scores(answer, len(texts), client)
            return scores

        settings = {"api": api, "sha": facts.get("model_sha")}
        super().__init__(
            score,
            name=name,
            fingerprint=weights_fingerprint(f"rerank-{api}", name, settings),
            batch_size=batch_size or (most if isinstance(most, int) and most > 0 else MAX_DOCUMENTS),
            concurrent=True,
        )


def _ranked_scores(answer: Any, n_texts: int, client: JsonClient) -> Floats:
    """The scores of a ranked list of {"index", "score"} (TEI) or {"index", "relevance_score"} (Cohere), by index."""
    entries: Any = answer.get("results") if isinstance(answer, dict) else answer
    try:
        scored = {entry["index"]: entry.get("relevance_score", entry.get("score")) for entry in entries}
        values = [float(scored[index]) for index in range(n_texts)]
    except (TypeError, KeyError, AttributeError, ValueError):
        raise ModelError(
            f"{client.url}/rerank answered {shown(answer, 200)}; expected an 'index' and a score for each of {n_texts} "
            f"texts"
        ) from None
    if len(scored) != n_texts:
        raise ModelError(f"{client.url}/rerank answered with {len(scored)} scores for {n_texts} texts")
    return pair_scores(values, n_texts, client.url)


def _by_query(pairs: Iterable[Pair]) -> dict[str, list[int]]:
    items: dict[str, list[int]] = {}
    for number, (query, _) in enumerate(pairs):
        items.setdefault(query, []).append(number)
    return items


def _local_fingerprint(library: str, model: Any, name: str, weights: str | None, settings: dict[str, Any]) -> str:
    """By the weights, or by the name of a model without weights in this process."""
    tokenizer = find_tokenizer(model)
    facts = settings | {"tokenizer": None if tokenizer is None else tokenizer.digest()}
    return weights_fingerprint(library, weights or name, facts)
