"""`PLAID` and `Voyager`: plait indexes of multi vectors, with the arguments and results of `pylate.indexes`.

Both are plait indexes on disk, in the folder `index_folder/index_name`, that `plait info` and `plait.open` read. Ids
are text or whole numbers; the number 5 and the text "5" name one document. A document whose id exists is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from plait.checks import check_count, check_flag, shown
from plait.codec.packing import check_bits
from plait.compat.arguments import refuse_unknown, warn_unused
from plait.compat.compression import compress_if_large
from plait.compat.pylate.rank import RerankResult
from plait.compat.pylate.vectors import Floats, as_items, as_multi_vectors
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import InputError, NotAnIndexError
from plait.index import Index, open_index
from plait.records import Document, Hit
from plait.search.multivector.probe import ProbeParams
from plait.search.stored_embeddings import stored_embeddings
from plait.storage.folder import ATTACHMENTS, remove_index_copy
from plait.storage.store import FILE_NAMES

NUMBER = "is_number"  # metadata: the id was a whole number
DEFAULT_PROBE, DEFAULT_FULL_SCORES = 8, 8192
# Of PLAID's old backend; PyLate takes these as further keywords.
STANFORD = (
    "embedding_size",
    "nranks",
    "index_bsize",
    "ndocs",
    "centroid_score_threshold",
    "ncells",
    "search_batch_size",
)
OWN_TRAINING = "plait trains its codes by itself"

Ids = str | Iterable[str | int]


class StoredVectors:
    """A plait index of multi vectors without texts: what both classes of this module write to and search in."""

    def __init__(self, index_folder: str, index_name: str, *, override: bool, n_threads: int | None) -> None:
        check_flag("override", override)
        self.path = Path(index_folder, index_name)
        self._n_threads = n_threads
        if override:
            remove_index_copy(self.path, {*FILE_NAMES, ATTACHMENTS})
        self._index: Index | None = None
        if self.path.is_dir() and any(self.path.iterdir()):
            try:
                self._index = open_index(self.path, n_threads=n_threads)
            except NotAnIndexError as error:
                raise NotAnIndexError(
                    f"{error}. An index of PyLate becomes one of plait with: plait import {self.path} --to FOLDER"
                ) from None

    def index(self) -> Index:
        """The index; ValueError, as in PyLate, if nothing was added."""
        if self._index is None or not len(self._index):
            raise ValueError("The index is empty. Please add documents before querying.")
        return self._index

    def add(self, ids: Any, embeddings: Any) -> None:
        """Adds documents in one commit."""
        chosen = as_ids(ids)
        vectors = as_multi_vectors(embeddings, "documents_embeddings")
        if len(chosen) != len(vectors):
            raise InputError(f"{len(chosen)} documents_ids were given for {len(vectors)} documents_embeddings")
        if len(set(map(str, chosen))) != len(chosen):
            raise InputError("documents_ids has an id twice; give each document its own")
        if not chosen:
            return
        if self._index is None:
            spec = EmbeddingSpec(multi=vectors.dim)
            self._index = open_index(self.path, create=True, spec=spec, n_threads=self._n_threads)
        documents = [Document(str(id), "", str(id), {NUMBER: True} if isinstance(id, int) else {}) for id in chosen]
        self._index.add_embeddings(documents, Embeddings(multi=vectors))

    def remove(self, ids: Any) -> None:
        if self._index is not None:
            self._index.delete([str(id) for id in as_ids(ids)])

    def best(
        self, queries: Any, k: int, subset: Any, params: ProbeParams | None, *, exact: bool = False
    ) -> list[list[RerankResult]]:
        """The k best documents of each query. Ids of `subset` that the index does not have are left out."""
        index = self.index()
        vectors = as_multi_vectors(queries, "queries_embeddings")
        if subset is None:
            hits = index.search_embeddings(Embeddings(multi=vectors), k, mode="multi", params=params, exact=exact)
            return [[_result(hit) for hit in hits_of_query] for hits_of_query in hits]
        subset = list(subset)
        each = subset if subset and isinstance(subset[0], list | tuple) else [subset] * len(vectors)
        if len(each) != len(vectors):
            raise InputError(f"subset has {len(each)} lists of ids for {len(vectors)} queries")
        results = []
        for item, ids in enumerate(each):
            known = list(index.snapshot.lookup([str(id) for id in as_ids(ids)]))
            query = Embeddings(multi=vectors.take([item]))
            (best,) = index.search_embeddings(query, k, mode="multi", candidates=known) if known else [[]]
            results.append([_result(hit) for hit in best])
        return results

    def vectors_of(self, ids: Ids) -> list[Floats]:
        """The stored vectors of documents; KeyError for an unknown id."""
        snapshot = self.index().snapshot
        wanted = [str(id) for id in as_ids(ids)]
        numbers = snapshot.lookup(wanted)
        if missing := [id for id in wanted if id not in numbers]:
            raise KeyError(missing[0])
        stored = {one.id: one for one in snapshot.fetch(list(numbers.values()))}
        vectors = (stored_embeddings(snapshot, stored[id], {"multi"}, max_vectors=None).multi for id in wanted)
        return [np.asarray(one[0], np.float32) for one in vectors if one is not None]


class PLAID:
    """An index of compressed multi vectors.

    Vectors are compressed to `nbits` (1, 2, 4 or 8) once there are 65,536 of them; a smaller index is searched exactly.
    `n_ivf_probe` and `n_full_scores` change the search if they are not PyLate's defaults; plait then reads that many
    cells for each query vector and scores that many documents. Else plait chooses both by the size of the index.
    """

    is_end_to_end_index = True

    def __init__(
        self,
        index_folder: str = "indexes",
        index_name: str = "colbert",
        override: bool = False,
        use_fast: bool = True,
        nbits: int = 4,
        kmeans_niters: int = 4,
        max_points_per_centroid: int = 256,
        n_samples_kmeans: int | None = None,
        seed: int = 42,
        use_triton: bool | None = None,
        n_ivf_probe: int = DEFAULT_PROBE,
        n_full_scores: int = DEFAULT_FULL_SCORES,
        batch_size: int = 1 << 18,
        num_threads: int | None = None,
        show_progress: bool = True,
        device: str | list[str] | None = None,
        low_memory: bool = False,
        **kwargs: Any,
    ) -> None:
        check_bits(nbits)
        check_flag("show_progress", show_progress)  # searches of plait show no bar
        unused = [
            ("use_fast", use_fast, True, "plait has one implementation"),
            ("kmeans_niters", kmeans_niters, 4, OWN_TRAINING),
            ("max_points_per_centroid", max_points_per_centroid, 256, OWN_TRAINING),
            ("n_samples_kmeans", n_samples_kmeans, None, OWN_TRAINING),
            ("seed", seed, 42, OWN_TRAINING),
            ("use_triton", use_triton, None, OWN_TRAINING),
            ("batch_size", batch_size, 1 << 18, "plait searches all queries at once"),
            ("low_memory", low_memory, False, "vectors are read from disk as they are needed"),
            ("device", None if device == "cpu" else device, None, "plait searches on the processor"),
        ]
        unused += [
            (name, kwargs.pop(name), None, "plait has one implementation") for name in STANFORD if name in kwargs
        ]
        for name, value, default, why in unused:
            warn_unused(name, value, default=default, why=why)
        refuse_unknown("PLAID", kwargs)
        self._nbits = nbits
        self._params = _probe_params(n_ivf_probe, n_full_scores)
        self._store = StoredVectors(index_folder, index_name, override=override, n_threads=num_threads)

    def add_documents(self, documents_ids: Ids, documents_embeddings: list[Any], **kwargs: Any) -> PLAID:
        """Adds documents, or replaces those with the same ids."""
        refuse_unknown("add_documents", kwargs)
        self._store.add(documents_ids, documents_embeddings)
        compress_if_large(self._store.index(), self._nbits)
        return self

    def remove_documents(self, documents_ids: Ids) -> PLAID:
        """Deletes documents; unknown ids are ignored."""
        self._store.remove(documents_ids)
        return self

    def update_documents(self, documents_ids: Ids, documents_embeddings: list[Any]) -> PLAID:
        """Replaces the vectors of documents; those that the index does not have are added."""
        return self.add_documents(documents_ids, documents_embeddings)

    def __call__(
        self, queries_embeddings: Any, k: int = 10, subset: list[list[str]] | list[str] | None = None
    ) -> list[list[RerankResult]]:
        """The k best documents of each query, best first."""
        return self.best(queries_embeddings, k, subset)

    def best(self, queries_embeddings: Any, k: int, subset: Any = None) -> list[list[RerankResult]]:
        """The k best documents of each query; what `retrieve.ColBERT` calls."""
        return self._store.best(queries_embeddings, k, subset, self._params)

    def get_documents_embeddings(self, document_ids: list[list[str]]) -> list[list[Floats]]:
        """The stored vectors of documents, decoded from their codes; PyLate's PLAID does not have them."""
        return [self._store.vectors_of(ids) for ids in document_ids]


class Voyager:
    """An index of multi vectors that are not compressed, and are searched exactly. PyLate's Voyager is an HNSW graph of
    single vectors, whose settings have no effect here."""

    is_end_to_end_index = False

    def __init__(
        self,
        index_folder: str = "indexes",
        index_name: str = "colbert",
        override: bool = False,
        embedding_size: int = 128,
        M: int = 64,  # noqa: N803 -- PyLate's name
        ef_construction: int = 200,
        ef_search: int = 200,
    ) -> None:
        check_count("embedding_size", embedding_size)
        for name, value, default in (
            ("M", M, 64),
            ("ef_construction", ef_construction, 200),
            ("ef_search", ef_search, 200),
        ):
            warn_unused(name, value, default=default, why="plait has no graph, and searches exactly")
        self._dim = embedding_size
        self._store = StoredVectors(index_folder, index_name, override=override, n_threads=None)

    def add_documents(self, documents_ids: Ids, documents_embeddings: list[Any], batch_size: int = 2000) -> Voyager:
        """Adds documents, or replaces those with the same ids; a commit for each `batch_size` of them."""
        check_count("batch_size", batch_size)
        ids, items = as_ids(documents_ids), as_items(documents_embeddings, "documents_embeddings")
        if len(ids) != len(items):
            raise InputError(f"{len(ids)} documents_ids were given for {len(items)} documents_embeddings")
        if wrong := {item.shape[1] for item in items} - {self._dim}:
            raise InputError(f"embeddings have {sorted(wrong)} dimensions; embedding_size is {self._dim}")
        for start in range(0, len(ids), batch_size):
            self._store.add(ids[start : start + batch_size], items[start : start + batch_size])
        return self

    def remove_documents(self, documents_ids: Ids) -> Voyager:
        """Deletes documents; KeyError for an unknown id."""
        self._store.vectors_of(documents_ids)
        self._store.remove(documents_ids)
        return self

    def __call__(self, queries_embeddings: Any, k: int = 10) -> dict[str, Any]:
        """The k nearest vectors of each query vector: the ids of their documents, and distances, 1 - cosine. Every
        stored vector is compared; `retrieve.ColBERT` searches documents and is much faster."""
        check_count("k", k)
        queries = as_items(queries_embeddings, "queries_embeddings")
        ids = [(int(one.id) if one.metadata.get(NUMBER) else one.id) for one in self._store.index()]
        vectors = MultiVectors.from_items(self._store.vectors_of(ids))
        owners = np.repeat(np.arange(len(ids)), np.diff(vectors.offsets))
        unit = _unit(np.asarray(vectors.values, np.float32))
        documents_ids, distances = [], []
        for query in queries:
            similarity = _unit(query) @ unit.T
            nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : min(k, len(unit))]
            documents_ids.append([[ids[owners[at]] for at in row] for row in nearest])
            distances.append(list(1 - np.take_along_axis(similarity, nearest, axis=1)))
        return {"documents_ids": documents_ids, "distances": distances}

    def best(self, queries_embeddings: Any, k: int, subset: Any = None) -> list[list[RerankResult]]:
        """The k best documents of each query; what `retrieve.ColBERT` calls."""
        return self._store.best(queries_embeddings, k, subset, None, exact=True)

    def get_documents_embeddings(self, document_ids: list[list[str]]) -> list[list[Floats]]:
        """The stored vectors of documents; KeyError for an unknown id."""
        return [self._store.vectors_of(ids) for ids in document_ids]


def as_ids(ids: Any) -> list[str | int]:
    """The ids of documents, one or many: text, or whole numbers."""
    if isinstance(ids, str):
        return [ids]
    if not isinstance(ids, Iterable):
        raise InputError(f"documents_ids must be a list of ids; got {shown(ids)}")
    checked: list[str | int] = []
    for id in ids:
        number = id.item() if isinstance(id, np.integer) else id
        if isinstance(number, bool) or not isinstance(number, str | int):
            raise InputError(f"an id is {shown(id)}; ids are text or whole numbers")
        checked.append(number)
    return checked


def _probe_params(n_ivf_probe: int, n_full_scores: int) -> ProbeParams | None:
    check_count("n_ivf_probe", n_ivf_probe)
    check_count("n_full_scores", n_full_scores)
    if (n_ivf_probe, n_full_scores) == (DEFAULT_PROBE, DEFAULT_FULL_SCORES):
        return None
    # PyLate scores n_full_scores documents in full; its other default would ask plait for far more than it needs.
    n_scored = None if n_full_scores == DEFAULT_FULL_SCORES else n_full_scores
    return ProbeParams(
        n_probe=None if n_ivf_probe == DEFAULT_PROBE else n_ivf_probe,
        n_code_scored=n_scored,
        n_candidates=None if n_scored is None else 2 * n_scored,
    )


def _result(hit: Hit) -> RerankResult:
    return RerankResult(id=int(hit.id) if hit.metadata.get(NUMBER) else hit.id, score=float(hit.score))


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), np.float32)
