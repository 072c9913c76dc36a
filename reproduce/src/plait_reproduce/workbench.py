"""`Workbench`: data sets as embeddings, exhaustive scores and BM25 runs, each computed once and saved."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.chunking import with_title
from plait.encode.model_card import Expansion, read_card
from plait.errors import ConfigError
from plait.evaluate.run_cache import hash_of
from plait.evaluate.runs import Run
from plait.scoring.maxsim import maxsim
from plait_reproduce.datasets import SETS, TIERS, Cut, CutSet, load_cut, named
from plait_reproduce.encoded_set import EncodedSet

if TYPE_CHECKING:
    from plait.encode.onnx import OnnxEncoder

PART = 50  # texts encoded and saved at a time: what a stop can lose
BM25_DEPTH = 200

Say = Callable[[str], None]
# A model that plait did not train further: claims about training and about plain MaxSim start from its states.
MODEL = "plait-gte-small"


class Workbench:
    """Shared by all arms: one folder of data and one of saved work. Arms may run in any order."""

    def __init__(
        self,
        data: str | Path,
        work: str | Path,
        *,
        tier: str = "quick",
        model: str | Path | None = None,
        n_threads: int | None = None,
        sets: Mapping[str, Cut] = SETS,
        say: Say = lambda _line: None,
    ) -> None:
        if tier not in TIERS:
            raise ConfigError(f"unknown tier {tier!r}; choose one of {', '.join(TIERS)}")
        self.data, self.work, self.tier, self.n_threads, self.say = Path(data), Path(work), tier, n_threads, say
        self.arrays = ArrayCache(self.work / "arrays")
        self.model, self._sets = MODEL if model is None else model, sets
        self._texts: dict[str, CutSet] = {}
        self._encoded: dict[tuple[str, Expansion | None], EncodedSet] = {}
        self._encoders: dict[object, OnnxEncoder] = {}

    @property
    def model_name(self) -> str:
        from plait.encode.load import find_model

        return read_card(find_model(self.model)).name

    def cut(self, name: str) -> Cut:
        return named(name, self._sets)

    def texts(self, name: str) -> CutSet:
        """The texts of a set, reduced for the tier."""
        if name not in self._texts:
            self._texts[name] = load_cut(name, self.cut(name), self.data, self.tier)
        return self._texts[name]

    def encoder(self, *, length: int | None = None, expansion: Expansion | None = None) -> OnnxEncoder:
        """The model, reading documents up to `length` tokens, with queries filled as `expansion` says."""
        if (length, expansion) not in self._encoders:
            self._encoders[length, expansion] = _encoder(self.model, length, expansion, self.n_threads)
        return self._encoders[length, expansion]

    def key(self, name: str) -> str:
        """Identifies a set's texts and how the model reads them; part of the key of every arm that uses the set."""
        return f"{self.texts(name).key}/{self.encoder(length=self.cut(name).length).fingerprint}"

    def encoded(self, name: str, *, expansion: Expansion | None = None) -> EncodedSet:
        """The embeddings of a set. `expansion` changes only the queries."""
        if (name, expansion) not in self._encoded:
            self._encoded[name, expansion] = self._encode(name, expansion)
        return self._encoded[name, expansion]

    def maxsim(self, encoded: EncodedSet) -> NDArray[np.float32]:
        """Exact MaxSim of all queries with all items: (queries, items)."""

        def make() -> Arrays:
            rows = encoded.document_rows
            scores = [
                maxsim(encoded.query_rows(query), rows, n_threads=self.n_threads or 2)
                for query in range(len(encoded.query_ids))
            ]
            return {"scores": np.stack(scores)}

        return self.arrays.get("maxsim", {"set": encoded.key}, make)["scores"]

    def bm25(self, name: str) -> Run:
        """plait's BM25 over the whole texts of a set."""
        texts = self.texts(name)

        def make() -> Arrays:
            return _bm25(texts, BM25_DEPTH)

        saved = self.arrays.get("bm25", {"set": texts.key, "depth": BM25_DEPTH}, make)
        ids = [document.id for document in texts.documents]
        ends = np.concatenate([[0], np.cumsum(saved["sizes"])])
        return {
            query: [(ids[number], float(score)) for number, score in zip(
                saved["documents"][begin:end].tolist(), saved["scores"][begin:end].tolist(), strict=True)]
            for query, begin, end in zip(texts.queries, ends[:-1], ends[1:], strict=True)
        }  # fmt: skip

    def _encode(self, name: str, expansion: Expansion | None) -> EncodedSet:
        cut, texts = self.cut(name), self.texts(name)
        encoder = self.encoder(length=cut.length)
        passages, owners = [], []
        for number, document in enumerate(texts.documents):
            spans = encoder.chunker.split(document.title, document.text) if cut.passages else [(0, len(document.text))]
            passages += [with_title(document.title, document.text[start:end]) for start, end in spans]
            owners += [number] * len(spans)
        reader = encoder if expansion is None else self.encoder(length=cut.length, expansion=expansion)
        documents = self._in_parts(name, passages, encoder.fingerprint, encoder.encode_documents)
        queries = self._in_parts(name, list(texts.queries.values()), reader.fingerprint, reader.encode_queries)
        key = f"{texts.key}/{reader.fingerprint}"
        return EncodedSet(texts, documents, queries, np.asarray(owners, np.int64), key)

    def _in_parts(
        self, name: str, texts: list[str], fingerprint: str, encode: Callable[[Sequence[str]], Embeddings]
    ) -> Embeddings:
        parts = []
        for start in range(0, len(texts), PART):
            part = texts[start : start + PART]
            key = {"texts": part, "model": fingerprint, "side": encode.__name__}

            def make(part: list[str] = part, start: int = start) -> Arrays:
                self.say(f"encoding {name}: {encode.__name__.partition('_')[2]} {start + len(part)} of {len(texts)}")
                return as_arrays(encode(part))

            parts.append(from_arrays(self.arrays.get("embeddings", {"of": _short(key)}, make)))
        return joined(parts)


def _short(key: Mapping[str, object]) -> str:
    """A hash of the key, so that texts are not written beside the arrays."""
    from plait.evaluate.run_cache import hash_of

    return hash_of(key)


def _encoder(
    model: str | Path | None, length: int | None, expansion: Expansion | None, n_threads: int | None
) -> OnnxEncoder:
    from plait.encode.load import choose_precision, find_model, open_session, open_tokenizer
    from plait.encode.model_files import model_file
    from plait.encode.onnx import OnnxEncoder
    from plait.encode.tokenizer import ModelTokenizer

    folder = find_model(model)
    card = read_card(folder)
    if length is not None:
        card = replace(card, document=replace(card.document, length=min(length, card.document.length)))
    if expansion is not None:
        card = replace(card, query=replace(card.query, expansion=expansion))
    session = open_session(model_file(folder, choose_precision(card.precisions, card.name, folder, None)), n_threads)
    return OnnxEncoder(card, ModelTokenizer(open_tokenizer(model_file(folder, card.tokenizer)), card), session)


def as_arrays(embeddings: Embeddings) -> Arrays:
    """Embeddings as named arrays, multi vectors in float16."""
    arrays: Arrays = {}
    if embeddings.dense is not None:
        arrays["dense"] = embeddings.dense.astype(np.float16)
    if embeddings.multi is not None:
        arrays.update(multi=embeddings.multi.values.astype(np.float16), multi_offsets=embeddings.multi.offsets)
    if embeddings.sparse is not None:
        sparse = embeddings.sparse
        arrays.update(sparse_terms=sparse.terms, sparse_weights=sparse.weights, sparse_offsets=sparse.offsets)
    return arrays


def from_arrays(arrays: Arrays) -> Embeddings:
    multi = MultiVectors(arrays["multi"], arrays["multi_offsets"]) if "multi" in arrays else None
    sparse = None
    if "sparse_terms" in arrays:
        sparse = SparseVectors(arrays["sparse_terms"], arrays["sparse_weights"], arrays["sparse_offsets"])
    dense = arrays["dense"].astype(np.float32) if "dense" in arrays else None
    return Embeddings(dense=dense, sparse=sparse, multi=multi)


def joined(parts: Sequence[Embeddings]) -> Embeddings:
    """One batch from several with the same kinds of embeddings."""
    dense = [part.dense for part in parts if part.dense is not None]
    multi = [part.multi for part in parts if part.multi is not None]
    sparse = [part.sparse for part in parts if part.sparse is not None]
    return Embeddings(
        dense=np.concatenate(dense) if dense else None,
        multi=MultiVectors(
            np.concatenate([part.values for part in multi]), _end_to_end([part.offsets for part in multi])
        ) if multi else None,
        sparse=SparseVectors(
            np.concatenate([part.terms for part in sparse]),
            np.concatenate([part.weights for part in sparse]),
            _end_to_end([part.offsets for part in sparse]),
        ) if sparse else None,
    )  # fmt: skip


def _end_to_end(offsets: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in offsets]))]).astype(np.int64)


def _bm25(texts: CutSet, depth: int) -> Arrays:
    """BM25 through an index; its dense vectors are constants that nothing reads."""
    from plait.encode.protocol import EmbeddingSpec
    from plait.index import open_index

    numbers = {document.id: number for number, document in enumerate(texts.documents)}
    nothing = np.ones((len(texts.documents), 8), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        index = open_index(Path(folder) / "words", create=True, spec=EmbeddingSpec(dense=8))
        with index:
            index.add_embeddings(texts.documents, Embeddings(dense=nothing))
            query_embeddings = Embeddings(dense=np.ones((len(texts.queries), 8), np.float32))
            found = index.search_embeddings(query_embeddings, depth, texts=list(texts.queries.values()), mode="bm25")
    return {
        "sizes": np.array([len(hits) for hits in found], np.int64),
        "documents": np.array([numbers[hit.id] for hits in found for hit in hits], np.int64),
        "scores": np.array([hit.score for hits in found for hit in hits], np.float32),
    }


Arrays = dict[str, NDArray[Any]]


class ArrayCache:
    """Costly arrays, saved by the key that decides them. A file is complete or missing."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(self, kind: str, key: Mapping[str, object], make: Callable[[], Arrays]) -> Arrays:
        """The arrays of `make`, computed once for a kind and a key, which must hold everything that decides them."""
        file = self.folder / kind / f"{hash_of(dict(key))}.npz"
        if file.exists():
            with np.load(file, allow_pickle=False) as found:
                return {name: found[name] for name in found.files}
        made = make()
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}.draft")
        with draft.open("wb") as handle:
            np.savez(handle, **made)  # type: ignore[arg-type]  # numpy takes a name for an option of its own
        draft.replace(file)
        file.with_suffix(".json").write_text(json.dumps(dict(key), indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return made
