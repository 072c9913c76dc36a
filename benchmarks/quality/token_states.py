"""The whole states of every token of a judged set, computed once and kept on disk as float16."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import MultiVectors
from plait.encode.chunking import with_title
from plait.encode.protocol import Encoder
from plait.errors import InputError, ModelError
from plait.evaluate import Dataset
from plait.readers import documents_from

QUERY_LENGTH, DOCUMENT_LENGTH = 64, 256  # tokens
BATCH = 32  # texts of similar length
OUTPUT = "last_hidden_state"


@dataclass(frozen=True, slots=True, eq=False)
class SetStates:
    """Item i of `queries` is `query_ids[i]`, and so for documents. A document is one passage, cut to its length."""

    query_ids: list[str]
    queries: MultiVectors
    document_ids: list[str]
    documents: MultiVectors


class GivesStates(Protocol):
    """Texts to one row for each token."""

    @property
    def fingerprint(self) -> str: ...

    def queries(self, texts: Sequence[str]) -> MultiVectors: ...

    def documents(self, texts: Sequence[str]) -> MultiVectors: ...


class GraphStates:
    """The output `last_hidden_state` of an ONNX graph, special tokens included."""

    def __init__(self, folder: Path, *, n_threads: int = 1) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        paths = [path for path in (folder / "onnx" / "model.onnx", folder / "model.onnx") if path.is_file()]
        if not paths or not (folder / "tokenizer.json").is_file():
            raise ModelError(
                f"{folder} lacks tokenizer.json, or onnx/model.onnx or model.onnx; name a folder with both"
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = n_threads
        self._session: Any = onnxruntime.InferenceSession(str(paths[0]), options, providers=["CPUExecutionProvider"])
        outputs = [output.name for output in self._session.get_outputs()]
        if OUTPUT not in outputs:
            raise ModelError(f"{paths[0]} has the outputs {', '.join(outputs)}; whole states need {OUTPUT}")
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._fingerprint = hashlib.sha256(paths[0].read_bytes()).hexdigest()

    @property
    def fingerprint(self) -> str:
        return f"{self._fingerprint} {QUERY_LENGTH} {DOCUMENT_LENGTH}"

    def queries(self, texts: Sequence[str]) -> MultiVectors:
        return self._encode(texts, QUERY_LENGTH)

    def documents(self, texts: Sequence[str]) -> MultiVectors:
        return self._encode(texts, DOCUMENT_LENGTH)

    def _encode(self, texts: Sequence[str], length: int) -> MultiVectors:
        self._tokenizer.enable_truncation(length)
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(texts)), key=lambda item: len(tokens[item]))
        rows: list[NDArray[np.float32]] = [np.zeros((0, 0), np.float32)] * len(texts)
        for start in range(0, len(order), BATCH):
            items = order[start : start + BATCH]
            ids = np.zeros((len(items), max(len(tokens[item]) for item in items)), np.int64)
            mask = np.zeros_like(ids)
            for row, item in enumerate(items):
                ids[row, : len(tokens[item])], mask[row, : len(tokens[item])] = tokens[item], 1
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            states = self._session.run([OUTPUT], {name: feeds[name] for name in feeds if name in self._inputs})[0]
            for row, item in enumerate(items):
                rows[item] = np.asarray(states[row, : len(tokens[item])], np.float32)
        return MultiVectors.from_items(rows, dim=0)


class EncoderStates:
    """The multi vectors of an encoder of plait, such as the bundled model's trained projection."""

    def __init__(self, encoder: Encoder) -> None:
        if encoder.spec.multi is None:
            raise ModelError("the model has no multi vectors to compare with; name one that has them")
        self._encoder = encoder

    @property
    def fingerprint(self) -> str:
        return self._encoder.fingerprint

    def queries(self, texts: Sequence[str]) -> MultiVectors:
        return _multi(self._encoder.encode_queries(texts).multi)

    def documents(self, texts: Sequence[str]) -> MultiVectors:
        return _multi(self._encoder.encode_documents(texts).multi)


def read_states(judged: Dataset, model: GivesStates, cache: Path) -> SetStates:
    """The states of a set's queries and documents, from `cache` if they are there."""
    if judged.corpus is None:
        raise InputError(f"{judged.name} has no corpus to encode")
    documents = list(documents_from([judged.corpus]))
    query_ids, document_ids = list(judged.queries), [document.id for document in documents]
    texts = [with_title(document.title, document.text) for document in documents]
    queries = _cached(cache, model.fingerprint, list(judged.queries.values()), model.queries, "queries")
    return SetStates(
        query_ids, queries, document_ids, _cached(cache, model.fingerprint, texts, model.documents, "documents")
    )


def _cached(cache: Path, fingerprint: str, texts: Sequence[str], encode: Any, side: str) -> MultiVectors:
    key = hashlib.sha256(json.dumps([fingerprint, side, list(texts)]).encode()).hexdigest()[:24]
    values_path, offsets_path = cache / f"{key}.values.npy", cache / f"{key}.offsets.npy"
    if not offsets_path.is_file():  # written last
        cache.mkdir(parents=True, exist_ok=True)
        states: MultiVectors = encode(texts)
        np.save(values_path, states.values.astype(np.float16))
        np.save(offsets_path, states.offsets)
    # From disk in any case, so that the first run and later ones have the same bits.
    return MultiVectors(np.load(values_path).astype(np.float32), np.load(offsets_path))


def _multi(given: MultiVectors | None) -> MultiVectors:
    assert given is not None  # the spec has multi vectors
    return given
