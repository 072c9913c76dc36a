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
    from plait.embeddings import Embeddings, MultiVectors, SparseVectors
    from plait.encode.load import load as load_model
    from plait.encode.protocol import EmbeddingSpec, Encoder
    from plait.errors import PlaitError
    from plait.index import Index
    from plait.index import open_index as open
    from plait.ingest import AddProgress, AddReport
    from plait.records import Document, Explanation, Hit, Span
    from plait.scoring.maxsim import maxsim
    from plait.search.trace import Trace

_HOMES = {
    "AddProgress": "plait.ingest",
    "AddReport": "plait.ingest",
    "Document": "plait.records",
    "Encoder": "plait.encode.protocol",
    "Explanation": "plait.records",
    "Hit": "plait.records",
    "Index": "plait.index",
    "MultiVectors": "plait.embeddings",
    "PlaitError": "plait.errors",
    "Span": "plait.records",
    "SparseVectors": "plait.embeddings",
    "EmbeddingSpec": "plait.encode.protocol",
    "Embeddings": "plait.embeddings",
    "Trace": "plait.search.trace",
    "load_model": "plait.encode.load:load",
    "maxsim": "plait.scoring.maxsim",
    "open": "plait.index:open_index",
}

__all__ = [
    "AddProgress",
    "AddReport",
    "Document",
    "EmbeddingSpec",
    "Embeddings",
    "Encoder",
    "Explanation",
    "Hit",
    "Index",
    "MultiVectors",
    "PlaitError",
    "Span",
    "SparseVectors",
    "Trace",
    "__version__",
    "load_model",
    "maxsim",
    "open",
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
