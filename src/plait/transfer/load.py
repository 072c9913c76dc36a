"""`import_index`: an index of another library becomes a plait index.

The index is built in a folder beside its target and renamed at the end, so that a source that turns out to be damaged
leaves nothing behind. Vectors stay as they are. Those that the source had compressed keep their centroids and which
centroid each vector has, so that a search reads the same passages. Their residuals are decoded, because plait's codes
have even steps and those of the others have not, and coded again with the same number of bits, and with 8 bits for the
last stage of a search, which scores as the source did. The report says what that lost.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.checks import as_path, check_count, check_flag, check_type
from plait.codec.packing import check_bits
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.chunking import with_title
from plait.encode.load import EXTERNAL, LazyEncoder, available_cpus
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, EncoderMismatchError, InputError, SourceError, StoreError
from plait.index import open_index
from plait.ingest import merge_after
from plait.records import Document, Span
from plait.storage.compaction import DEFAULT_BITS
from plait.storage.folder import ATTACHMENTS, check_folder, remove_index_copy
from plait.storage.fsync import storage_errors, sync_folder
from plait.storage.store import FILE_NAMES, IMPORTED, Store
from plait.transfer.formats import open_source
from plait.transfer.passages import PassageBatch, read_passages
from plait.transfer.source import UNKNOWN_VOCABULARY, ImportOptions, OriginalCodec, Row, Source, damaged
from plait.transfer.texts import Texts

COMMIT_EVERY = 2000  # documents
MAX_SAMPLE = 20_000  # vectors that are compared after coding
MAX_COMPARED = 32  # passages that a given model encodes, to compare it with the stored vectors
MIN_COSINE = 0.9  # between a stored vector and that of the same text by the same model


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did."""

    path: Path
    form: str
    n_documents: int
    n_passages: int
    n_without_text: int  # documents whose title is their id, because the source has no text for them
    model: str  # the model that the source or the caller names; empty if neither does
    bits: int | None = None  # of the codes; None if the vectors are not compressed
    has_8bit: bool = False  # whether there are 8-bit codes as well
    mean_cosine: float | None = None  # between decoded vectors of the source and those of the finest new codes
    top10_agreement: float | None = None  # share of the best 10 by decoded vectors that the new codes keep
    model_cosine: float | None = None  # between stored vectors and those that the given model makes of the texts
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def import_index(
    source: str | Path,
    to: str | Path,
    *,
    form: str | None = None,
    options: ImportOptions | None = None,
    texts: str | Path | None = None,
    model: str | Path | None = None,
    compress: bool | None = None,
    bits: int | None = None,
    keep_8bit: bool | None = None,
    language: str | None = None,
    n_threads: int | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> ImportReport:
    """Makes a new plait index at `to` from an index, a table or a collection of another library.

    `source` is a file, a folder or the URL of a server; its format is detected, or given as `form`. `texts` is a file
    of documents (JSON lines, TSV, a BEIR folder) for sources without texts. `model` is the plait model that made the
    vectors: it then encodes the queries, after it was compared with the stored vectors. `compress` codes the multi
    vectors to `bits`; the default is to do so if the source did, with its bits. `keep_8bit` stores 8-bit codes as well,
    for the last stage of a search; the default is to do so if the source had codes of fewer bits.

        report = import_index("faiss.index", "my-index", texts="corpus.jsonl")
    """
    start = time.perf_counter()
    target = as_path("the path of the new index", to)
    check_type("options", options, (ImportOptions, type(None)), "ImportOptions", ConfigError)
    if bits is not None:
        check_bits(bits)
    if keep_8bit is not None:
        check_flag("keep_8bit", keep_8bit)
    if compress is False and (bits is not None or keep_8bit):
        raise ConfigError("bits and keep_8bit are for compressed vectors; leave them out, or leave out no-compress")
    if bits is not None or keep_8bit:
        compress = True
    if n_threads is not None:
        check_count("n_threads", n_threads)
    threads = n_threads or available_cpus()
    _check_target(target)
    opened = open_source(source, form, options or ImportOptions())
    encoder = None if model is None else LazyEncoder(model, None, precision=None, n_threads=threads)
    if encoder is not None:
        opened = _with_vocabulary(opened, encoder.spec())
        _check_kinds(opened.spec, encoder.spec(), str(model))
    partial = target.absolute().with_name(f".{target.name}.part")
    with storage_errors(target):
        remove_index_copy(partial, {*FILE_NAMES, ATTACHMENTS})  # of an import that was killed
    try:
        loading = _Loading(opened, None if texts is None else Texts(texts), on_progress)
        report = _build(
            partial, opened, loading, encoder, _coding(opened, compress, bits, keep_8bit), language, threads
        )
        with storage_errors(target):
            with suppress(FileNotFoundError):
                target.rmdir()  # an empty folder is accepted
            partial.rename(target)
            sync_folder(target.absolute().parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return ImportReport(path=target, form=opened.form, seconds=time.perf_counter() - start, **report)


def _check_target(to: Path) -> None:
    with storage_errors(to):
        check_folder(to)
        if to.exists() and any(to.iterdir()):
            raise StoreError(f"{to} exists already and is not empty; an import makes a new index. Choose another")
        if not to.absolute().parent.is_dir():
            raise StoreError(f"{to.absolute().parent} is not a folder; create it first, or choose another folder")


def _with_vocabulary(source: Source, encoded: EmbeddingSpec) -> Source:
    """The source with as many sparse terms as the model has, if it does not say how many."""
    if source.spec.sparse != UNKNOWN_VOCABULARY or encoded.sparse is None:
        return source
    return replace(source, spec=replace(source.spec, sparse=encoded.sparse))


def _check_kinds(stored: EmbeddingSpec, encoded: EmbeddingSpec, model: str) -> None:
    for kind, size in stored.sizes().items():
        if encoded.sizes().get(kind) != size:
            raise EncoderMismatchError(
                f"the source has {kind} vectors of size {size}, but the model {model} makes {encoded.sizes()}; give "
                f"the model that made the vectors, or leave the model out"
            )


@dataclass(frozen=True, slots=True)
class _Coding:
    bits: int
    keep_8bit: bool
    centroids: NDArray[np.float32] | None


def _coding(source: Source, compress: bool | None, bits: int | None, keep_8bit: bool | None) -> _Coding | None:
    original: OriginalCodec | None = source.codec
    if source.spec.multi is None:
        if compress:
            raise ConfigError("only multi vectors are compressed, and the source has none; leave out compress and bits")
        return None
    if compress is False or (compress is None and original is None):
        return None
    if original is None:
        return _Coding(bits or DEFAULT_BITS, bool(keep_8bit), None)
    chosen = bits or original.bits
    return _Coding(chosen, chosen < 8 if keep_8bit is None else keep_8bit, original.centroids)


def _build(
    path: Path,
    source: Source,
    loading: _Loading,
    encoder: LazyEncoder | None,
    coding: _Coding | None,
    language: str | None,
    n_threads: int,
) -> dict[str, Any]:
    named = source.model if encoder is None else encoder.name or ""
    properties: dict[str, object] = {IMPORTED: {"format": source.form, "model": source.model}}
    if encoder is not None:
        properties["model"] = encoder.name
    fingerprint = EXTERNAL if encoder is None else encoder.fingerprint()
    store = Store.create(path, fingerprint=fingerprint, spec=source.spec, properties=properties, language=language)
    result: dict[str, Any] = {"model": named}
    notes = list(source.notes)
    if encoder is None and source.spec.sparse == UNKNOWN_VOCABULARY:
        notes.append("how many sparse terms there are is unknown; to search them with texts, import with --model")
    with store:
        with store.writer() as writer:
            for batch in loading.batches():
                writer.write(batch.documents, batch.spans, batch.embeddings)
                merge_after("the documents were added", writer)
            if not loading.n_documents:
                raise SourceError("the source has no documents, so no index was made; check its path and collection")
        notes += loading.notes()
        if encoder is not None:
            result["model_cosine"] = _compare_model(store, encoder, notes)
        if coding is not None:
            with store.snapshot() as snapshot:
                before = _sample(next(read_passages(snapshot)))
            with store.writer() as writer:
                done = writer.compact(
                    bits=coding.bits,
                    keep_8bit=coding.keep_8bit,
                    centroids=coding.centroids,
                    centroid_ids=None if coding.centroids is None else loading.cells(),
                    n_threads=n_threads,
                )
            with store.snapshot() as snapshot:
                after = _sample(next(read_passages(snapshot)))
            if done.bits is not None:
                result |= {"bits": done.bits, "has_8bit": coding.keep_8bit, "mean_cosine": mean_cosine(before, after)}
                result["top10_agreement"] = done.codes_recall
            notes += [done.note] if done.note else []
    if encoder is None:
        with open_index(path, n_threads=n_threads) as index:
            index.calibrate()
    else:
        with open_index(path, encoder=encoder.get(), n_threads=n_threads) as index:
            index.calibrate()
    counts = {"n_documents": loading.n_documents, "n_passages": loading.n_passages}
    return {**result, **counts, "n_without_text": loading.n_without_text, "notes": tuple(notes)}


def _sample(batch: PassageBatch) -> NDArray[np.float32]:
    assert batch.embeddings.multi is not None
    return batch.embeddings.multi.values[:MAX_SAMPLE].astype(np.float32)


def mean_cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """The mean cosine of the angles between the rows of two arrays."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(np.mean(np.einsum("ij,ij->i", one, other) / np.maximum(lengths, 1e-12)))


def _compare_model(store: Store, encoder: LazyEncoder, notes: list[str]) -> float | None:
    """Encodes some texts of the index and compares the result with the stored vectors. A wrong model would search
    without any error and find nothing useful."""
    with store.snapshot() as snapshot:
        batch = next(read_passages(snapshot))
    chosen: list[Document] = []
    items: list[int] = []
    item = 0
    for document, spans in zip(batch.documents, batch.spans, strict=True):
        if document.text.strip() and len(spans) == 1 and len(items) < MAX_COMPARED:
            chosen.append(document)
            items.append(item)
        item += len(spans)
    if not chosen:
        notes.append("the model was not compared with the vectors: no document has a text in one passage")
        return None
    texts = [document.text for document in chosen]
    cosines = [_cosine(encoder.get().encode_documents(texts), batch.embeddings, items)]
    titled = [with_title(document.title, document.text) for document in chosen]
    if titled != texts:  # the vectors may be those of titles and texts, or of texts alone
        cosines.append(_cosine(encoder.get().encode_documents(titled), batch.embeddings, items))
    cosine = max((one for one in cosines if one is not None), default=None)
    if cosine is not None and cosine < MIN_COSINE:
        raise EncoderMismatchError(
            f"the model {encoder.name} did not make these vectors: of {len(texts)} texts that it encoded, the mean "
            f"cosine with the stored vectors is {cosine:.3f}; give the right model, or leave the model out"
        )
    return cosine


def _cosine(made: Embeddings, stored: Embeddings, items: list[int]) -> float | None:
    """The mean cosine of vectors that a model made and the stored ones of `items`; the least of all kinds."""
    cosines = []
    if stored.dense is not None and made.dense is not None:
        cosines.append(mean_cosine(stored.dense[items], made.dense))
    if stored.sparse is not None and made.sparse is not None:
        terms = [(_weights(stored.sparse, item), _weights(made.sparse, number)) for number, item in enumerate(items)]
        cosines.append(float(np.mean([_sparse_cosine(*pair) for pair in terms])))
    if stored.multi is not None and made.multi is not None:
        pairs = [(stored.multi[item], made.multi[number]) for number, item in enumerate(items)]
        cosines.append(float(np.mean([_best_matches(*pair) for pair in pairs])))
    return min(cosines, default=None)


def _weights(vectors: SparseVectors, item: int) -> dict[int, float]:
    """The weights of an item by term."""
    terms, weights = vectors[item]
    return dict(zip(terms.tolist(), weights.tolist(), strict=True))


def _sparse_cosine(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """The cosine of two sparse vectors; 1 if both are empty."""
    if not one and not other:
        return 1.0
    product = sum(weight * other.get(term, 0.0) for term, weight in one.items())
    return product / max(math.hypot(*one.values()) * math.hypot(*other.values()), 1e-12)


def _best_matches(stored: NDArray[np.floating], made: NDArray[np.floating]) -> float:
    """The mean, over the stored vectors of a text, of the best cosine with a vector of the model: the source may have
    pooled or dropped vectors."""
    if not len(stored) or not len(made):
        return 1.0
    one, other = (np.asarray(rows, np.float32) for rows in (stored, made))
    one = one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-12)
    other = other / np.maximum(np.linalg.norm(other, axis=1, keepdims=True), 1e-12)
    return float((one @ other.T).max(axis=1).mean())


class _Loading:
    """Rows of the source to documents with passages, a batch at a time."""

    def __init__(
        self, source: Source, texts: Texts | None, on_progress: Callable[[int, int | None], None] | None
    ) -> None:
        self._source, self._texts, self._on_progress = source, texts, on_progress
        self.n_documents = self.n_passages = self.n_without_text = 0
        self._ids: set[str] = set()
        self._cells: list[NDArray[np.int32]] = []  # four bytes for each vector of a source that compressed them

    def batches(self) -> Iterator[PassageBatch]:
        groups = self._documents()
        while group := list(islice(groups, COMMIT_EVERY)):
            yield self._batch(group)
            if self._on_progress is not None:
                self._on_progress(self.n_passages, self._source.n_rows)

    def cells(self) -> NDArray[np.int32] | None:
        """The centroids of all vectors in the order of the documents; None if the source has none."""
        return np.concatenate(self._cells) if self._cells else None

    def notes(self) -> list[str]:
        notes = []
        if self._texts is not None:
            notes += self._texts.notes(self.n_documents)
        if self.n_without_text:
            notes.append(
                f"{self.n_without_text:,} of {self.n_documents:,} documents have no text; their title is their id. "
                f"Give the texts with --texts FILE, or search by vectors alone"
            )
        return notes

    def _documents(self) -> Iterator[list[Row]]:
        """The rows of each document."""
        group: list[Row] = []
        for row in self._source.rows():
            if row.passage and group and row.id == group[0].id:
                group.append(row)
                continue
            if group:
                yield group
            if row.id in self._ids:
                raise SourceError(
                    f"the id {row.id!r:.100} occurs twice in the source; ids must be different. Choose another field "
                    f"with --id-field, or remove one of the two"
                )
            self._ids.add(row.id)
            group = [row]
        if group:
            yield group

    def _batch(self, groups: list[list[Row]]) -> PassageBatch:
        documents, spans = [], []
        for number, rows in enumerate(groups, self.n_documents):
            document = self._document(rows[0], number)
            documents.append(document)
            spans.append([row.span or Span(0, len(document.text)) for row in rows])
        self.n_documents += len(groups)
        rows = [row for group in groups for row in group]
        self.n_passages += len(rows)
        cells = [row.cells.astype(np.int32) for row in rows if row.cells is not None]
        self._cells += [np.concatenate(cells)] if cells else []
        return PassageBatch(documents, spans, _embeddings(rows, self._source.spec))

    def _document(self, row: Row, number: int) -> Document:
        id, text, title, metadata = row.id, row.text, row.title, dict(row.metadata)
        sections, origin = row.sections, row.origin
        if self._texts is not None:
            known = self._texts.find(id, None if self._source.has_ids else number)
            if known is not None:
                text, title, metadata = known.text, known.title, {**metadata, **known.metadata}
                id = id if self._source.has_ids else known.id
        if not text.strip() and not title.strip():
            self.n_without_text += 1
            title = id
        return Document(id, text, title, metadata, sections, origin)


def _embeddings(rows: list[Row], spec: EmbeddingSpec) -> Embeddings:
    """The vectors of rows as one batch; SourceError if a row lacks a kind or has another size."""
    for row in rows:
        for kind, size in spec.sizes().items():
            vectors = getattr(row, kind)
            if vectors is None:
                raise SourceError(
                    f"{row.id!r:.100} has no {kind} vector, but others have; plait needs every kind for every passage. "
                    f"Choose the vectors with --vector-field"
                )
            if kind != "sparse" and vectors.shape[-1] != size:
                raise SourceError(
                    f"{row.id!r:.100} has a {kind} vector of {vectors.shape[-1]} dimensions; the first has {size}"
                )
    try:
        return Embeddings(
            dense=None if spec.dense is None else np.stack([_given(row.dense) for row in rows]).astype(np.float32),
            sparse=None if spec.sparse is None else SparseVectors.from_items([row.sparse or {} for row in rows]),
            multi=None
            if spec.multi is None
            else MultiVectors.from_items([_given(row.multi) for row in rows], dim=spec.multi),
        )
    except (ValueError, InputError) as error:
        raise damaged("the source", error) from None


def _given(vectors: NDArray[np.floating] | None) -> NDArray[np.floating]:
    assert vectors is not None
    return vectors
