"""`BGEM3FlagModel`, `FlagModel` and `FlagReranker`, with the arguments and results of FlagEmbedding 1.4.

Models run on the processor or on one graphics card. `use_fp16` and `use_bf16` ask for a fast model, which plait has in
int8; with both False the precision is fp32, if the model has it. Batches are filled by tokens; none is larger than
`batch_size` texts of full length. `colbert_score` gives a float32 of numpy, where FlagEmbedding gives a tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.checks import check_count, shown
from plait.compat.arguments import one_device, refuse, refuse_unknown, warn, warn_unused
from plait.compat.loading import check_kind, encode, load_cross_encoder, load_encoder, model_folder
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.onnx import OnnxEncoder
from plait.errors import ConfigError, InputError
from plait.rerank.cross_card import NO_ACTIVATION
from plait.scoring.maxsim import maxsim

Floats = NDArray[np.float32]
Texts = list[str] | str
Weights = Mapping[str, float]
NO_TORCH = "plait returns numpy arrays and has no torch; use torch.from_numpy on the result"
PASSAGE_KEYWORDS = ("passage_instruction_for_retrieval", "passage_instruction_format")
MAX_LENGTH = 512  # FlagEmbedding's default, which is not a wish for more than a model takes


class _Embedder:
    """What both embedders share: a loaded model, instructions, and other lengths of the same model."""

    def __init__(
        self,
        model: str | Path,
        *,
        needs: str,
        normalize_embeddings: bool,
        fast: bool,
        instructions: Mapping[bool, tuple[str | None, str]],
        devices: Any,
        pooling_method: str,
        trust_remote_code: bool,
        cache_dir: str | None,
        truncate_dim: int | None,
    ) -> None:
        refuse(
            "normalize_embeddings", normalize_embeddings, default=True, why="models of plait give vectors of length 1"
        )
        warn_unused("trust_remote_code", trust_remote_code, default=False, why="plait runs no code of a checkpoint")
        warn_unused("cache_dir", cache_dir, default=None, why="models are kept in PLAIT_HOME")
        if truncate_dim is not None:
            check_count("truncate_dim", truncate_dim)
        precision = None if fast else "fp32"
        folder = model_folder(model, precision=precision)
        self.encoder = load_encoder(folder, precision=precision, device=one_device("devices", devices), needs=needs)
        dense = self.encoder.card.dense
        if pooling_method != "cls" and (dense is None or pooling_method != dense.pooling):
            raise ConfigError(
                f"pooling_method is {shown(pooling_method)}, and {self.encoder.name} pools by "
                f"{'nothing' if dense is None else dense.pooling}; plait keeps what the model was made with"
            )
        self.truncate_dim = truncate_dim
        self._instructions = instructions

    def instructed(self, texts: Sequence[str], *, is_query: bool) -> list[str]:
        """The texts after the instruction for queries, or for passages."""
        instruction, template = self._instructions[is_query]
        if instruction is None:
            return list(texts)
        return [template.replace("\\n", "\n").format(instruction, text) for text in texts]

    def encode(self, texts: Sequence[str], *, is_query: bool, batch_size: int, max_length: int) -> Embeddings:
        """Embeddings of texts that are cut to `max_length` tokens."""
        encoder = _with_length(self.encoder, max_length)
        return encode(encoder, texts, is_query=is_query, batch_size=batch_size)

    def truncated(self, vectors: Floats) -> Floats:
        """The first `truncate_dim` dimensions, of length 1 again."""
        if self.truncate_dim is None:
            return vectors
        cut = vectors[..., : self.truncate_dim]
        return np.asarray(cut / np.maximum(np.linalg.norm(cut, axis=-1, keepdims=True), 1e-12), np.float32)


class BGEM3FlagModel:
    """A model of dense, sparse and multi vectors, such as BGE-M3 or plait-small."""

    DEFAULT_POOLING_METHOD = "cls"

    def __init__(
        self,
        model_name_or_path: str,
        normalize_embeddings: bool = True,
        use_fp16: bool = True,
        use_bf16: bool = False,
        query_instruction_for_retrieval: str | None = None,
        query_instruction_format: str = "{}{}",
        devices: str | list[str] | None = None,
        pooling_method: str = "cls",
        trust_remote_code: bool = False,
        cache_dir: str | None = None,
        colbert_dim: int = -1,
        batch_size: int = 256,
        query_max_length: int = MAX_LENGTH,
        passage_max_length: int = MAX_LENGTH,
        return_dense: bool = True,
        return_sparse: bool = False,
        return_colbert_vecs: bool = False,
        truncate_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        passage = _passage_instruction("BGEM3FlagModel", kwargs)
        self._embedder = _Embedder(
            model_name_or_path,
            needs="dense",
            normalize_embeddings=normalize_embeddings,
            fast=use_fp16 or use_bf16,
            instructions={True: (query_instruction_for_retrieval, query_instruction_format), False: passage},
            devices=devices,
            pooling_method=pooling_method,
            trust_remote_code=trust_remote_code,
            cache_dir=cache_dir,
            truncate_dim=truncate_dim,
        )
        spec = self._embedder.encoder.spec
        for kind in ("sparse", "multi"):
            check_kind(spec, self._embedder.encoder.name, kind)
        if colbert_dim not in (-1, spec.multi):
            raise ConfigError(f"colbert_dim is {shown(colbert_dim)}; the multi vectors of the model have {spec.multi}")
        self.model_name_or_path = model_name_or_path
        self.batch_size, self.query_max_length, self.passage_max_length = (
            batch_size,
            query_max_length,
            passage_max_length,
        )
        self.return_dense, self.return_sparse, self.return_colbert_vecs = (
            return_dense,
            return_sparse,
            return_colbert_vecs,
        )

    def __repr__(self) -> str:
        return f"BGEM3FlagModel({self._embedder.encoder.name!r})"

    def encode_queries(
        self,
        queries: Texts,
        batch_size: int | None = None,
        max_length: int | None = None,
        return_dense: bool | None = None,
        return_sparse: bool | None = None,
        return_colbert_vecs: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The embeddings of queries, after their instruction."""
        refuse_unknown("encode_queries", kwargs)
        kinds = (return_dense, return_sparse, return_colbert_vecs)
        return self._encode(queries, True, True, batch_size, max_length or self.query_max_length, kinds)

    def encode_corpus(
        self,
        corpus: Texts,
        batch_size: int | None = None,
        max_length: int | None = None,
        return_dense: bool | None = None,
        return_sparse: bool | None = None,
        return_colbert_vecs: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The embeddings of passages, after their instruction."""
        refuse_unknown("encode_corpus", kwargs)
        kinds = (return_dense, return_sparse, return_colbert_vecs)
        return self._encode(corpus, False, True, batch_size, max_length or self.passage_max_length, kinds)

    def encode(
        self,
        sentences: Texts,
        batch_size: int | None = None,
        max_length: int | None = None,
        return_dense: bool | None = None,
        return_sparse: bool | None = None,
        return_colbert_vecs: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """A dict of dense_vecs (texts, dim) float32, lexical_weights (a dict of token id to weight for each text) and
        colbert_vecs (an array for each text); None for a kind that is not returned. Texts are encoded as passages."""
        refuse_unknown("encode", kwargs)
        kinds = (return_dense, return_sparse, return_colbert_vecs)
        return self._encode(sentences, False, False, batch_size, max_length or self.passage_max_length, kinds)

    def compute_score(
        self,
        sentence_pairs: list[tuple[str, str]] | tuple[str, str],
        batch_size: int | None = None,
        max_query_length: int | None = None,
        max_passage_length: int | None = None,
        weights_for_different_modes: list[float] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Scores of (query, passage) pairs: a dict of lists, or of numbers for one pair, by colbert, sparse, dense,
        sparse+dense and colbert+sparse+dense. The weights are those of dense, sparse and colbert."""
        refuse_unknown("compute_score", kwargs)
        weights = weights_for_different_modes or [1.0, 1.0, 1.0]
        if len(weights) != 3:
            raise ConfigError(f"weights_for_different_modes is {shown(weights)}; it has three: dense, sparse, colbert")
        if isinstance(sentence_pairs, list) and not sentence_pairs:
            return []
        single = isinstance(sentence_pairs[0], str)
        pairs: list[Any] = [sentence_pairs] if single else list(sentence_pairs)
        size = self.batch_size if batch_size is None else batch_size
        sides = [
            self._embedder.encode(
                [pair[side] for pair in pairs], is_query=side == 0, batch_size=size, max_length=length
            )
            for side, length in (
                (0, max_query_length or self.query_max_length),
                (1, max_passage_length or self.passage_max_length),
            )
        ]
        scores = _pair_scores(sides[0], sides[1], weights)
        return {name: values[0] if single else values for name, values in scores.items()}

    def convert_id_to_token(self, lexical_weights: Weights | list[Weights]) -> Any:
        """The same weights by the texts of the tokens; a dict alone for one dict, and for a list of one."""
        items = [lexical_weights] if isinstance(lexical_weights, Mapping) else list(lexical_weights)
        tokenizer = self._embedder.encoder.tokenizer
        named = [{tokenizer.text_of(int(id)): weight for id, weight in item.items()} for item in items]
        return named[0] if len(named) == 1 else named

    def compute_lexical_matching_score(
        self,
        lexical_weights_1: Weights | list[Weights],
        lexical_weights_2: Weights | list[Weights],
    ) -> Any:
        """The sum of products of shared tokens: a number for two dicts, (n_1, n_2) for two lists."""
        if isinstance(lexical_weights_1, Mapping) and isinstance(lexical_weights_2, Mapping):
            return _lexical_score(lexical_weights_1, lexical_weights_2)
        if isinstance(lexical_weights_1, list) and isinstance(lexical_weights_2, list):
            return np.array([[_lexical_score(one, other) for other in lexical_weights_2] for one in lexical_weights_1])
        raise ValueError("The input format of lexical_weights is not correct.")

    def colbert_score(self, q_reps: Floats, p_reps: Floats) -> np.float32:
        """The mean, over the vectors of the query, of the best product with a vector of the passage."""
        query = np.ascontiguousarray(q_reps, np.float32)
        return np.float32(maxsim(query, MultiVectors.from_items([np.asarray(p_reps, np.float32)]))[0] / len(query))

    def _encode(
        self,
        texts: Texts,
        is_query: bool,
        with_instruction: bool,
        batch_size: int | None,
        max_length: int,
        kinds: tuple[bool | None, bool | None, bool | None],
    ) -> dict[str, Any]:
        defaults = (self.return_dense, self.return_sparse, self.return_colbert_vecs)
        dense, sparse, multi = (given if flag is None else flag for flag, given in zip(kinds, defaults, strict=True))
        if not (dense or sparse or multi):
            raise ConfigError("return_dense, return_sparse and return_colbert_vecs are all False; choose one at least")
        items = _as_texts(texts)
        if with_instruction:
            items = self._embedder.instructed(items, is_query=is_query)
        size = self.batch_size if batch_size is None else batch_size
        embeddings = self._embedder.encode(items, is_query=is_query, batch_size=size, max_length=max_length)
        assert embeddings.dense is not None
        assert embeddings.sparse is not None
        assert embeddings.multi is not None
        single = isinstance(texts, str)
        vectors = self._embedder.truncated(embeddings.dense) if dense else None
        weights = _lexical_weights(embeddings.sparse) if sparse else None
        rows = _rows(embeddings.multi, self._embedder) if multi else None
        return {
            "dense_vecs": vectors if vectors is None or not single else vectors[0],
            "lexical_weights": weights if weights is None or not single else weights[0],
            "colbert_vecs": rows if rows is None or not single else rows[0],
        }


class FlagModel:
    """A model of dense vectors, such as BGE or plait-small."""

    DEFAULT_POOLING_METHOD = "cls"

    def __init__(
        self,
        model_name_or_path: str,
        normalize_embeddings: bool = True,
        use_fp16: bool = True,
        use_bf16: bool = False,
        query_instruction_for_retrieval: str | None = None,
        query_instruction_format: str = "{}{}",
        devices: str | list[str] | None = None,
        pooling_method: str = "cls",
        trust_remote_code: bool = False,
        cache_dir: str | None = None,
        batch_size: int = 256,
        query_max_length: int = MAX_LENGTH,
        passage_max_length: int = MAX_LENGTH,
        convert_to_numpy: bool = True,
        truncate_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        refuse("convert_to_numpy", convert_to_numpy, default=True, why=NO_TORCH)
        passage = _passage_instruction("FlagModel", kwargs)
        self._embedder = _Embedder(
            model_name_or_path,
            needs="dense",
            normalize_embeddings=normalize_embeddings,
            fast=use_fp16 or use_bf16,
            instructions={True: (query_instruction_for_retrieval, query_instruction_format), False: passage},
            devices=devices,
            pooling_method=pooling_method,
            trust_remote_code=trust_remote_code,
            cache_dir=cache_dir,
            truncate_dim=truncate_dim,
        )
        self.model_name_or_path, self.batch_size = model_name_or_path, batch_size
        self.query_max_length, self.passage_max_length = query_max_length, passage_max_length

    def __repr__(self) -> str:
        return f"FlagModel({self._embedder.encoder.name!r})"

    def encode_queries(
        self,
        queries: Texts,
        batch_size: int | None = None,
        max_length: int | None = None,
        convert_to_numpy: bool | None = None,
        **kwargs: Any,
    ) -> Floats:
        """The vectors of queries, after their instruction: (texts, dim) float32, or (dim,) for one text."""
        refuse_unknown("encode_queries", kwargs)
        texts = self._embedder.instructed(_as_texts(queries), is_query=True)
        length = max_length or self.query_max_length
        return self._encode(queries, texts, True, batch_size, length, convert_to_numpy)

    def encode_corpus(
        self,
        corpus: Texts,
        batch_size: int | None = None,
        max_length: int | None = None,
        convert_to_numpy: bool | None = None,
        **kwargs: Any,
    ) -> Floats:
        """The vectors of passages, after their instruction."""
        refuse_unknown("encode_corpus", kwargs)
        texts = self._embedder.instructed(_as_texts(corpus), is_query=False)
        length = max_length or self.passage_max_length
        return self._encode(corpus, texts, False, batch_size, length, convert_to_numpy)

    def encode(
        self,
        sentences: Texts,
        batch_size: int | None = None,
        max_length: int | None = None,
        convert_to_numpy: bool | None = None,
        **kwargs: Any,
    ) -> Floats:
        """The vectors of texts, encoded as passages, without an instruction."""
        refuse_unknown("encode", kwargs)
        length = max_length or self.passage_max_length
        return self._encode(sentences, _as_texts(sentences), False, batch_size, length, convert_to_numpy)

    def _encode(
        self,
        given: Texts,
        texts: Sequence[str],
        is_query: bool,
        batch_size: int | None,
        max_length: int,
        convert_to_numpy: bool | None,
    ) -> Floats:
        if convert_to_numpy is False:
            raise ConfigError(f"convert_to_numpy is False; {NO_TORCH}")
        size = self.batch_size if batch_size is None else batch_size
        dense = self._embedder.encode(texts, is_query=is_query, batch_size=size, max_length=max_length).dense
        assert dense is not None
        vectors = self._embedder.truncated(dense)
        return np.asarray(vectors[0]) if isinstance(given, str) else vectors


class FlagReranker:
    """A cross-encoder, such as bge-reranker-v2-m3 or plait-cross-small.

    The precision is fp32 if the model has it and `use_fp16` is False, else int8. Pairs of more than `max_length` tokens
    are cut as the model's card says, not by `query_max_length`.
    """

    def __init__(
        self,
        model_name_or_path: str,
        use_fp16: bool = False,
        query_instruction_for_rerank: str | None = None,
        query_instruction_format: str = "{}{}",
        passage_instruction_for_rerank: str | None = None,
        passage_instruction_format: str = "{}{}",
        trust_remote_code: bool = False,
        cache_dir: str | None = None,
        devices: str | list[str] | list[int] | None = None,
        batch_size: int = 128,
        query_max_length: int | None = None,
        max_length: int = MAX_LENGTH,
        normalize: bool = False,
        **kwargs: Any,
    ) -> None:
        refuse_unknown("FlagReranker", kwargs)
        refuse("query_max_length", query_max_length, default=None, why="set the length of pairs, max_length, alone")
        warn_unused("trust_remote_code", trust_remote_code, default=False, why="plait runs no code of a checkpoint")
        warn_unused("cache_dir", cache_dir, default=None, why="models are kept in PLAIT_HOME")
        precision = None if use_fp16 else "fp32"
        loaded = load_cross_encoder(model_name_or_path, precision=precision, device=one_device("devices", devices))
        # Scores without an activation: `normalize` says whether they become shares of 1.
        self._cross = loaded.with_card(replace(loaded.card, activation=NO_ACTIVATION))
        self._formats = (
            (query_instruction_for_rerank, query_instruction_format),
            (passage_instruction_for_rerank, passage_instruction_format),
        )
        self.model_name_or_path, self.batch_size = model_name_or_path, batch_size
        self.max_length, self.normalize = max_length, normalize

    def __repr__(self) -> str:
        return f"FlagReranker({self._cross.name!r})"

    def compute_score(self, sentence_pairs: list[tuple[str, str]] | tuple[str, str], **kwargs: Any) -> list[float]:
        """A score for each (query, passage), higher is better; a list of one for one pair. The keywords are batch_size,
        max_length and normalize."""
        batch_size, max_length = kwargs.pop("batch_size", None), kwargs.pop("max_length", None)
        normalize = kwargs.pop("normalize", None)
        why = "set the length of pairs, max_length, alone"
        refuse_unknown("compute_score", kwargs, {"query_max_length": why})
        if not sentence_pairs:
            raise InputError("sentence_pairs is empty; give one pair at least")
        pairs: list[Any] = [sentence_pairs] if isinstance(sentence_pairs[0], str) else list(sentence_pairs)
        length = _known_length(max_length or self.max_length, self._cross.card.pair.length, self._cross.name)
        pair_format = self._cross.card.pair
        if length != pair_format.length:
            room = min(pair_format.query_length, length // 2)
            pair_format = replace(pair_format, length=length, query_length=room)
        cross = self._cross.with_card(replace(self._cross.card, pair=pair_format))
        size = self.batch_size if batch_size is None else batch_size
        check_count("batch_size", size)
        texts = [(self._instructed(pair[0], 0), self._instructed(pair[1], 1)) for pair in pairs]
        scores = cross.score(texts, batch_tokens=min(4096, size * length)).astype(np.float64)
        if self.normalize if normalize is None else normalize:
            scores = 1 / (1 + np.exp(-scores))
        return [float(score) for score in scores]

    def _instructed(self, text: str, side: int) -> str:
        instruction, template = self._formats[side]
        return text if instruction is None else template.replace("\\n", "\n").format(instruction, text)


def _as_texts(texts: Texts) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _with_length(encoder: OnnxEncoder, max_length: int) -> OnnxEncoder:
    check_count("max_length", max_length)
    card = encoder.card
    query = _known_length(max_length, card.query.length, card.name)
    document = _known_length(max_length, card.document.length, card.name)
    if (query, document) == (card.query.length, card.document.length):
        return encoder
    overlap = min(card.document.overlap, document // 4)
    inputs = {
        "query": replace(card.query, length=query),
        "document": replace(card.document, length=document, overlap=overlap),
    }
    return encoder.with_card(replace(card, **inputs))  # type: ignore[arg-type]


def _known_length(wanted: int, taken: int, name: str) -> int:
    """The length to cut to: at most what the model takes, with a warning unless it is FlagEmbedding's default."""
    if wanted > taken and wanted != MAX_LENGTH:
        warn(f"max_length is {wanted}, and {name} takes {taken} tokens; longer texts are cut there")
    return min(wanted, taken)


def _passage_instruction(call: str, keywords: dict[str, Any]) -> tuple[str | None, str]:
    instruction, template = (keywords.pop(name, None) for name in PASSAGE_KEYWORDS)
    refuse_unknown(call, keywords)
    return instruction, template or "{}{}"


def _lexical_weights(vectors: SparseVectors) -> list[dict[str, np.float32]]:
    """By token id, as text; a missing token weighs 0, as in FlagEmbedding's defaultdict."""
    weights = []
    for item in range(len(vectors)):
        terms, values = vectors[item]
        pairs = zip(terms.tolist(), values, strict=True)
        weights.append(defaultdict(int, {str(term): weight for term, weight in pairs if weight > 0}))
    return weights  # type: ignore[return-value]


def _rows(vectors: MultiVectors, embedder: _Embedder) -> list[Floats]:
    items = (np.asarray(vectors[item], np.float32).copy() for item in range(len(vectors)))
    return [embedder.truncated(item) for item in items]


def _lexical_score(one: Weights, other: Weights) -> Any:
    return sum(weight * other[token] for token, weight in one.items() if token in other)


def _pair_scores(queries: Embeddings, passages: Embeddings, weights: Sequence[float]) -> dict[str, list[float]]:
    assert queries.dense is not None
    assert passages.dense is not None
    assert queries.sparse is not None
    assert passages.sparse is not None
    assert queries.multi is not None
    assert passages.multi is not None
    dense = np.einsum("ij,ij->i", queries.dense, passages.dense).astype(np.float64)
    terms = [
        [dict(zip(*side[item], strict=True)) for item in range(len(side))] for side in (queries.sparse, passages.sparse)
    ]
    sparse = np.array([float(_lexical_score(*pair)) for pair in zip(*terms, strict=True)])
    colbert = np.array(
        [
            float(maxsim(np.asarray(queries.multi[item], np.float32), passages.multi, items=np.array([item]))[0])
            / len(queries.multi[item])
            for item in range(len(dense))
        ]
    )
    both = (dense * weights[0] + sparse * weights[1]) / (weights[0] + weights[1])
    every = (dense * weights[0] + sparse * weights[1] + colbert * weights[2]) / sum(weights)
    named = {"colbert": colbert, "sparse": sparse, "dense": dense, "sparse+dense": both, "colbert+sparse+dense": every}
    return {name: [float(score) for score in scores] for name, scores in named.items()}
