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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plait.checks import parse_json
from plait.encode.protocol import EmbeddingSpec
from plait.errors import DocumentError, SourceError
from plait.records import Span
from plait.storage.validate import parse_reserved
from plait.transfer.flat import VERSION, document_fields
from plait.transfer.passages import model_name, read_passages
from plait.transfer.source import ImportOptions, Row, Source, damaged

if TYPE_CHECKING:
    from plait.index import Index

CARD, DOCUMENTS = "plait-vectors.json", "documents.jsonl"


def write_folder(index: Index, to: Path, *, filter: str | None, vectors: bool) -> int:
    """Writes the arrays; returns the number of passages. Every array is held in memory once."""
    to.mkdir()
    arrays: dict[str, list[NDArray[Any]]] = {}
    n_passages = 0
    with (to / DOCUMENTS).open("w", encoding="utf-8") as lines:
        for batch in read_passages(index.snapshot, filter=filter, vectors=vectors):
            for document, spans in zip(batch.documents, batch.spans, strict=True):
                lines.write(json.dumps(document_fields(document, spans), ensure_ascii=False) + "\n")
            n_passages += batch.n_passages
            embeddings = batch.embeddings
            if embeddings.dense is not None:
                arrays.setdefault("dense", []).append(np.asarray(embeddings.dense, np.float32))
            if embeddings.multi is not None:
                arrays.setdefault("multi", []).append(np.array(embeddings.multi.values))
                arrays.setdefault("multi_offsets", []).append(np.diff(embeddings.multi.offsets))
            if embeddings.sparse is not None:
                arrays.setdefault("sparse_terms", []).append(embeddings.sparse.terms)
                arrays.setdefault("sparse_weights", []).append(embeddings.sparse.weights)
                arrays.setdefault("sparse_offsets", []).append(np.diff(embeddings.sparse.offsets))
    for name, parts in arrays.items():
        joined = np.concatenate(parts)
        if name.endswith("_offsets"):
            joined = np.concatenate([np.zeros(1, np.int64), np.cumsum(joined, dtype=np.int64)])
        np.save(to / f"{name}.npy", joined, allow_pickle=False)
    sizes = index.spec.sizes() if vectors else {}
    card = {"version": VERSION, "spec": sizes, "fixed": index.spec.fixed, "model": model_name(index)}
    (to / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return n_passages


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
    except (OSError, ValueError, EOFError, SyntaxError) as error:
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
