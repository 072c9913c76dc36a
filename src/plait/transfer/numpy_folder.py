"""A folder of numpy arrays and JSON lines: the plainest export, which any language can read.

plait-vectors.json                                  version, sizes of the kinds, model
documents.jsonl                                     id, title, text, metadata and spans of each document
dense.npy                                           (passages, dim) float32
multi.npy, multi_offsets.npy                        (vectors, dim); passage i owns offsets[i] to offsets[i + 1]
sparse_terms.npy, sparse_weights.npy, sparse_offsets.npy
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.checks import parse_json
from plait.embeddings import Embeddings
from plait.encode.protocol import EmbeddingSpec
from plait.errors import DocumentError, SourceError
from plait.records import Span
from plait.storage.validate import parse_reserved
from plait.transfer.flat import VERSION, document_fields
from plait.transfer.passages import Passages
from plait.transfer.source import ImportOptions, Row, Source, damaged

CARD, DOCUMENTS = "plait-vectors.json", "documents.jsonl"
ARRAYS = ("dense", "multi", "multi_offsets", "sparse_terms", "sparse_weights", "sparse_offsets")
FOLDER_NAMES = {CARD, DOCUMENTS, *(f"{name}.npy" for name in ARRAYS)}


def write_folder(passages: Passages, to: Path) -> int:
    """Writes the arrays, a batch at a time; returns the number of passages."""
    to.mkdir()
    n_passages = 0
    with ExitStack() as stack:
        lines = stack.enter_context((to / DOCUMENTS).open("w", encoding="utf-8"))
        arrays: dict[str, _ArrayFile] = {}
        for batch in passages.batches():
            for document, spans in zip(batch.documents, batch.spans, strict=True):
                lines.write(json.dumps(document_fields(document, spans), ensure_ascii=False) + "\n")
            for name, values in _arrays(batch.embeddings, passages.multi_type, is_first=not n_passages):
                if name not in arrays:
                    arrays[name] = stack.enter_context(_ArrayFile(to / f"{name}.npy", values.dtype, values.shape[1:]))
                arrays[name].append(values)
            n_passages += batch.n_passages
    sizes = passages.spec.sizes() if passages.vectors else {}
    card = {"version": VERSION, "spec": sizes, "fixed": passages.spec.fixed, "model": passages.model}
    (to / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return n_passages


def _arrays(embeddings: Embeddings, multi_type: np.dtype[Any], *, is_first: bool) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays of a batch by name. Offsets are relative to the batch; the first of them is 0 in the first batch."""
    start = 0 if is_first else 1
    if embeddings.dense is not None:
        yield "dense", np.asarray(embeddings.dense, np.float32)
    if embeddings.multi is not None:
        yield "multi", embeddings.multi.values.astype(multi_type)
        yield "multi_offsets", embeddings.multi.offsets[start:]
    if embeddings.sparse is not None:
        yield "sparse_terms", embeddings.sparse.terms
        yield "sparse_weights", embeddings.sparse.weights
        yield "sparse_offsets", embeddings.sparse.offsets[start:]


class _ArrayFile:
    """A .npy file that grows along its first axis. numpy leaves room in the header for the length, which is written
    again at the end."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._path, self._dtype, self._shape = path, dtype, shape
        self._length = 0
        self._last = 0  # the end of the offsets so far

    def __enter__(self) -> _ArrayFile:
        self._file = self._path.open("wb")
        self._write_header()
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.seek(0)
            self._write_header()

    def append(self, values: NDArray[Any]) -> None:
        if self._path.stem.endswith("_offsets") and len(values):
            values = values + self._last
            self._last = int(values[-1])
        assert values.dtype == self._dtype
        assert values.shape[1:] == self._shape
        self._file.write(np.ascontiguousarray(values).data)
        self._length += len(values)

    def _write_header(self) -> None:
        shape = (self._length, *self._shape)
        fields = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, fields)


def open_source(path: str, options: ImportOptions) -> Source:
    """The arrays and documents of such a folder."""
    del options
    folder = Path(path)
    card = read_json(folder / CARD)
    try:
        sizes = {kind: int(size) for kind, size in card["spec"].items() if kind in ("dense", "sparse", "multi")}
        spec = EmbeddingSpec(**sizes, fixed=card.get("fixed"))
        model = str(card.get("model", ""))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(folder / CARD, repr(error)) from None
    if not sizes:
        raise SourceError(f"{path} was exported without vectors; to index its texts, use plait index")
    dense = None if spec.dense is None else load_array(folder / "dense.npy", "f", (None, spec.dense))
    multi = None if spec.multi is None else load_array(folder / "multi.npy", "f", (None, spec.multi))
    offsets = {
        kind: _offsets(folder / f"{kind}_offsets.npy")
        for kind in ("multi", "sparse")
        if getattr(spec, kind) is not None
    }
    terms = weights = None
    if spec.sparse is not None:
        terms = load_array(folder / "sparse_terms.npy", "i", (None,))
        weights = load_array(folder / "sparse_weights.npy", "f", (len(terms),))
        _check_end(folder, "sparse", offsets["sparse"], len(terms))
    if multi is not None:
        _check_end(folder, "multi", offsets["multi"], len(multi))
    counts = {len(ends) - 1 for ends in offsets.values()} | ({len(dense)} if dense is not None else set())
    if len(counts) != 1:
        raise damaged(folder, f"its arrays have different numbers of passages: {sorted(counts)}")
    (n_rows,) = counts

    def rows() -> Iterator[Row]:
        item = 0
        for document, spans in _documents(folder / DOCUMENTS):
            for passage, span in enumerate(spans):
                if item >= n_rows:
                    raise damaged(folder, f"its documents have more than the {n_rows} passages of its arrays")
                vectors: dict[str, Any] = {}
                if dense is not None:
                    vectors["dense"] = np.array(dense[item], np.float32)
                if multi is not None:
                    vectors["multi"] = np.array(multi[slice(*offsets["multi"][item : item + 2])])
                if terms is not None and weights is not None:
                    entries = slice(*offsets["sparse"][item : item + 2])
                    vectors["sparse"] = dict(zip(terms[entries].tolist(), weights[entries].tolist(), strict=True))
                item += 1
                if passage:
                    yield Row(document["id"], passage=passage, span=span, **vectors)
                else:
                    yield Row(**document, span=span, **vectors)
        if item != n_rows:
            raise damaged(folder, f"its documents have {item} passages, its arrays {n_rows}")

    return Source("numpy", spec, rows, n_rows, model)


def _documents(file: Path) -> Iterator[tuple[dict[str, Any], list[Span]]]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    fields = parse_json(line)
                    metadata = dict(fields["metadata"])
                    sections, origin = parse_reserved("a document", metadata)
                    spans = [Span(int(start), int(end)) for start, end in fields["spans"]]
                    row = {name: str(fields[name]) for name in ("id", "title", "text")}
                except (KeyError, TypeError, ValueError, DocumentError) as error:
                    raise damaged(f"{file}, line {number}", repr(error)) from None
                yield {**row, "metadata": metadata, "sections": sections, "origin": origin}, spans
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(file, error) from None


def _offsets(file: Path) -> NDArray[np.int64]:
    offsets = load_array(file, "i", (None,)).astype(np.int64)
    if not len(offsets) or offsets[0] != 0 or np.any(offsets[1:] < offsets[:-1]):
        raise damaged(file, "offsets must ascend from 0")
    return offsets


def _check_end(folder: Path, kind: str, offsets: NDArray[np.int64], length: int) -> None:
    if offsets[-1] != length:
        raise damaged(folder, f"the offsets of its {kind} vectors end at {offsets[-1]}, not at {length}")


def load_array(file: Path, kinds: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """An array of a .npy file, memory-mapped. `kinds` are the allowed kinds of its type; None in `shape` is any size.
    Object arrays, which are pickles, are refused."""
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise damaged(file, "the file is missing") from None
    except (OSError, ValueError, EOFError, SyntaxError, OverflowError, TokenError) as error:
        raise damaged(file, error) from None
    sizes = [expected in (None, size) for expected, size in zip(shape, array.shape, strict=False)]
    if array.dtype.kind not in kinds or array.ndim != len(shape) or not all(sizes):
        raise damaged(file, f"it is {array.dtype} of shape {array.shape}; expected kind {kinds} and shape {shape}")
    return array


def read_json(file: Path) -> Any:
    """A JSON object of a file."""
    try:
        value = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise damaged(file, "the file is missing") from None
    except (OSError, ValueError) as error:
        raise damaged(file, error) from None
    if not isinstance(value, dict):
        raise damaged(file, "it is no JSON object")
    return value
