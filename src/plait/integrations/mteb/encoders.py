"""plait's models as MTEB encoders, for all its tasks: dense vectors; sparse and multi vectors for retrieval and
reranking. MTEB then searches exhaustively, and a text is truncated to the length of the model, where `PlaitSearch`
splits it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from mteb.similarity_functions import max_sim, pairwise_max_sim
from mteb.types import PromptType

from plait.checks import shown
from plait.embeddings import Embeddings, SparseVectors
from plait.encode.load import load_model
from plait.encode.protocol import Encoder
from plait.errors import ConfigError, ModelError
from plait.integrations.mteb.search import make_meta
from plait.integrations.reranking import check_scorer
from plait.rerank.cross_encoder import PairScorer, shared_cross

Kind = Literal["dense", "sparse", "multi"]
KINDS: tuple[Kind, ...] = get_args(Kind)
RETRIEVAL = ("Retrieval", "Reranking")  # in the names of task types that compare by similarity alone


class PlaitEncoder:
    """Encodes with one kind of embeddings of a model: `PlaitEncoder("plait-small", kind="dense")`.

    `model` is the name of a bundled or installed model, a model folder, or an encoder of plait. Similarity is the dot
    product for dense and sparse vectors, as in plait, and MaxSim for multi vectors.
    """

    def __init__(
        self,
        model: str | Path | Encoder | None = None,
        revision: str | None = None,
        *,
        kind: Kind = "dense",
        device: str | None = None,
        **_options: Any,
    ) -> None:
        del revision  # MTEB passes it; a folder has one
        if kind not in KINDS:
            raise ConfigError(f"kind is {shown(kind)}; it must be one of {', '.join(KINDS)}")
        is_name = model is None or isinstance(model, str | Path)
        self._encoder: Encoder = load_model(model, device=device) if is_name else model  # type: ignore[arg-type, assignment]
        if kind not in self._encoder.spec.sizes():
            raise ModelError(
                f"{shown(model)} makes no {kind} vectors; it makes {', '.join(self._encoder.spec.sizes())}"
            )
        self._kind: Kind = kind
        name = "plait-small" if model is None else Path(str(model)).name if is_name else "given encoder"
        self.mteb_model_meta = make_meta(name, kind)

    def encode(self, inputs: Any, *, task_metadata: Any, prompt_type: Any = None, **_options: Any) -> Any:
        """One embedding for each text: an array for dense vectors, a sparse matrix, or a list of arrays."""
        is_reranking = "Reranking" in task_metadata.type
        if self._kind == "multi" and not any(name in task_metadata.type for name in RETRIEVAL):
            raise ConfigError(f"{task_metadata.name} is {task_metadata.type}, which needs one vector a text; use dense")
        is_query = prompt_type == PromptType.query
        parts = [self._encode(batch["text"], is_query=is_query) for batch in inputs]
        if self._kind == "dense":
            return np.concatenate([part.dense for part in parts if part.dense is not None])
        if self._kind == "multi":
            return [part.multi[item] for part in parts if part.multi is not None for item in range(len(part.multi))]
        matrix = _stacked([part.sparse for part in parts if part.sparse is not None], self._encoder.spec.sparse or 0)
        is_retrieval = "Retrieval" in task_metadata.type and not is_reranking
        return matrix if is_retrieval else matrix.toarray()

    def _encode(self, texts: list[str], *, is_query: bool) -> Embeddings:
        return self._encoder.encode_queries(texts) if is_query else self._encoder.encode_documents(texts)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Scores of all pairs."""
        if self._kind == "multi":
            return max_sim(embeddings1, embeddings2)
        if hasattr(embeddings1, "toarray") and hasattr(embeddings2, "toarray"):
            return (embeddings1 @ embeddings2.T).toarray()
        return np.asarray(embeddings1) @ np.asarray(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Scores of pairs at the same position."""
        if self._kind == "multi":
            return pairwise_max_sim(embeddings1, embeddings2)
        return (np.asarray(embeddings1) * np.asarray(embeddings2)).sum(axis=-1)


def _stacked(parts: list[SparseVectors], n_terms: int) -> Any:
    """A sparse matrix of (texts, terms)."""
    from scipy.sparse import csr_matrix

    offsets = [np.zeros(1, np.int64)]
    for part in parts:
        offsets.append(part.offsets[1:] + offsets[-1][-1])
    weights = np.concatenate([part.weights for part in parts]).astype(np.float32)
    terms = np.concatenate([part.terms for part in parts]).astype(np.int64)
    pointers = np.concatenate(offsets)
    return csr_matrix((weights, terms, pointers), shape=(len(pointers) - 1, n_terms))


class PlaitCrossEncoder:
    """A cross-encoder for MTEB's reranking tasks. `model` is the name or folder of a cross-encoder, an object that
    scores pairs, or None for plait-cross-small."""

    def __init__(
        self, model: Any = None, revision: str | None = None, device: str | None = None, **_options: Any
    ) -> None:
        del revision
        check_scorer(model)
        is_name = model is None or isinstance(model, str | Path)
        self._scorer: PairScorer = shared_cross(model, device=device) if is_name else model
        self.mteb_model_meta = make_meta("plait-cross-small" if model is None else Path(str(model)).name, "cross")

    def predict(self, inputs1: Any, inputs2: Any, **_options: Any) -> Any:
        """One score for each pair of a query and a document."""
        queries = [text for batch in inputs1 for text in batch["text"]]
        documents = [text for batch in inputs2 for text in batch["text"]]
        return self._scorer.score(list(zip(queries, documents, strict=True)))
