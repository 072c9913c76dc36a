"""plait: dense, sparse and multi-vector retrieval woven into one engine.

    import plait

    index = plait.open("my-index", create=True)
    index.add([{"id": "1", "text": "Vectors are woven.", "year": 2024}])
    for hit in index.search("how are vectors combined", k=5, filter="year >= 2020"):
        print(hit.id, hit.score, hit.text)

Names are loaded when they are first used, so that importing plait costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from plait.version import __version__

if TYPE_CHECKING:
    from plait.async_index import AsyncIndex
    from plait.client.async_client import AsyncClient
    from plait.client.client import Client
    from plait.codec.pooling import Pooling
    from plait.codec.projection import Projection
    from plait.cur.modes import AdacurParams, AnncurParams, AxnParams
    from plait.deadline import Deadline
    from plait.embeddings import Embeddings, MultiVectors, SparseVectors
    from plait.encode.chunking import Chunking
    from plait.encode.load import load_model
    from plait.encode.protocol import EmbeddingSpec, Encoder
    from plait.errors import (
        AccessError,
        ConfigError,
        CorruptIndexError,
        DocumentError,
        EncoderMismatchError,
        FilterError,
        InputError,
        LockedError,
        ModelError,
        NewerFormatError,
        NotAnIndexError,
        PlaitError,
        QueryError,
        ReadOnlyError,
        SearchCancelledError,
        SearchTimeoutError,
        ServerError,
        SourceError,
        StoreError,
        UnknownFieldWarning,
    )
    from plait.folder_sync.run import FileProgress, SyncReport
    from plait.index import Index, sync
    from plait.index import open_index as open
    from plait.index_pool import IndexPool
    from plait.ingest import AddProgress, AddReport
    from plait.readers.given import ReadOptions
    from plait.readers.sources import SourceReport
    from plait.records import Document, Explanation, Group, Hit, Passage, Section, Span
    from plait.rerank.reranker import Reranker, load_reranker
    from plait.scoring.maxsim import maxsim
    from plait.search.dense import DenseParams
    from plait.search.hybrid import BgeM3Params, HybridParams
    from plait.search.multivector.colxtr import ColXtrParams
    from plait.search.multivector.plaid import PlaidParams
    from plait.search.multivector.probe import ProbeParams
    from plait.search.multivector.warp import WarpParams
    from plait.search.multivector.xtr import XtrParams
    from plait.search.rescoring import RescoreParams
    from plait.search.sparse import SparseParams
    from plait.search.trace import Trace
    from plait.searcher import SearchRequest
    from plait.storage.fields import FacetCount, Facets

_HOMES = {
    "AccessError": "plait.errors",
    "AdacurParams": "plait.cur.modes",
    "AddProgress": "plait.ingest",
    "AddReport": "plait.ingest",
    "AnncurParams": "plait.cur.modes",
    "AsyncClient": "plait.client.async_client",
    "AsyncIndex": "plait.async_index",
    "AxnParams": "plait.cur.modes",
    "BgeM3Params": "plait.search.hybrid",
    "Chunking": "plait.encode.chunking",
    "Client": "plait.client.client",
    "ColXtrParams": "plait.search.multivector.colxtr",
    "ConfigError": "plait.errors",
    "CorruptIndexError": "plait.errors",
    "Deadline": "plait.deadline",
    "DenseParams": "plait.search.dense",
    "Document": "plait.records",
    "DocumentError": "plait.errors",
    "EmbeddingSpec": "plait.encode.protocol",
    "Embeddings": "plait.embeddings",
    "Encoder": "plait.encode.protocol",
    "EncoderMismatchError": "plait.errors",
    "Explanation": "plait.records",
    "FacetCount": "plait.storage.fields",
    "Facets": "plait.storage.fields",
    "FileProgress": "plait.folder_sync.run",
    "FilterError": "plait.errors",
    "Group": "plait.records",
    "Hit": "plait.records",
    "HybridParams": "plait.search.hybrid",
    "Index": "plait.index",
    "IndexPool": "plait.index_pool",
    "InputError": "plait.errors",
    "LockedError": "plait.errors",
    "ModelError": "plait.errors",
    "MultiVectors": "plait.embeddings",
    "NewerFormatError": "plait.errors",
    "NotAnIndexError": "plait.errors",
    "Passage": "plait.records",
    "PlaidParams": "plait.search.multivector.plaid",
    "PlaitError": "plait.errors",
    "Pooling": "plait.codec.pooling",
    "Projection": "plait.codec.projection",
    "ProbeParams": "plait.search.multivector.probe",
    "QueryError": "plait.errors",
    "ReadOnlyError": "plait.errors",
    "ReadOptions": "plait.readers.given",
    "Reranker": "plait.rerank.reranker",
    "RescoreParams": "plait.search.rescoring",
    "SearchCancelledError": "plait.errors",
    "SearchRequest": "plait.searcher",
    "SearchTimeoutError": "plait.errors",
    "Section": "plait.records",
    "ServerError": "plait.errors",
    "SourceError": "plait.errors",
    "SourceReport": "plait.readers.sources",
    "Span": "plait.records",
    "SparseParams": "plait.search.sparse",
    "SparseVectors": "plait.embeddings",
    "StoreError": "plait.errors",
    "SyncReport": "plait.folder_sync.run",
    "Trace": "plait.search.trace",
    "UnknownFieldWarning": "plait.errors",
    "WarpParams": "plait.search.multivector.warp",
    "XtrParams": "plait.search.multivector.xtr",
    "load_model": "plait.encode.load",
    "load_reranker": "plait.rerank.reranker",
    "maxsim": "plait.scoring.maxsim",
    "open": "plait.index:open_index",
    "sync": "plait.index",
}

__all__ = [
    "AccessError",
    "AdacurParams",
    "AddProgress",
    "AddReport",
    "AnncurParams",
    "AsyncClient",
    "AsyncIndex",
    "AxnParams",
    "BgeM3Params",
    "Chunking",
    "Client",
    "ColXtrParams",
    "ConfigError",
    "CorruptIndexError",
    "Deadline",
    "DenseParams",
    "Document",
    "DocumentError",
    "EmbeddingSpec",
    "Embeddings",
    "Encoder",
    "EncoderMismatchError",
    "Explanation",
    "FacetCount",
    "Facets",
    "FileProgress",
    "FilterError",
    "Group",
    "Hit",
    "HybridParams",
    "Index",
    "IndexPool",
    "InputError",
    "LockedError",
    "ModelError",
    "MultiVectors",
    "NewerFormatError",
    "NotAnIndexError",
    "Passage",
    "PlaidParams",
    "PlaitError",
    "Pooling",
    "ProbeParams",
    "Projection",
    "QueryError",
    "ReadOnlyError",
    "ReadOptions",
    "Reranker",
    "RescoreParams",
    "SearchCancelledError",
    "SearchRequest",
    "SearchTimeoutError",
    "Section",
    "ServerError",
    "SourceError",
    "SourceReport",
    "Span",
    "SparseParams",
    "SparseVectors",
    "StoreError",
    "SyncReport",
    "Trace",
    "UnknownFieldWarning",
    "WarpParams",
    "XtrParams",
    "__version__",
    "load_model",
    "load_reranker",
    "maxsim",
    "open",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'plait' has no attribute {name!r}")
    home, _, original = _HOMES[name].partition(":")
    value = getattr(import_module(home), original or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
