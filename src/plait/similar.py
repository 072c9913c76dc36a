"""What `Index.similar` searches for: a document of the index, a text or embeddings become the query of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from plait.checks import check_type, shown
from plait.embeddings import Embeddings
from plait.encode.chunking import with_title
from plait.encode.load import LazyEncoder
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, DocumentError, InputError
from plait.search.hybrid import HybridParams
from plait.search.modes import find_mode
from plait.search.stored_embeddings import stored_embeddings
from plait.searcher import SearchRequest, check_query
from plait.storage.snapshot import Snapshot

MAX_CHARACTERS = 2000  # of a document whose words are searched


@dataclass(frozen=True, slots=True)
class SimilarQuery:
    """A query for similar documents."""

    embeddings: Embeddings
    texts: Sequence[str] | None
    request: SearchRequest
    exclude: int | None = None  # the number of the document itself; then the embeddings are those of the index


def similar_query(
    snapshot: Snapshot,
    source: LazyEncoder,
    request: SearchRequest,
    *,
    id: str | None,
    text: str | None,
    embeddings: Embeddings | None,
) -> SimilarQuery:
    """The query for documents similar to one of these three."""
    if request.rerank:
        raise ConfigError("similar does not rerank: a cross-encoder compares a query with a document; leave out rerank")
    request = _without_words(request, snapshot.spec)
    kinds = _kinds(request, snapshot.spec)
    reads_text = "bm25" in find_mode(request.mode).needs
    if embeddings is not None:
        check_type("embeddings", embeddings, Embeddings, "plait.Embeddings of one document", InputError)
        if len(embeddings) != 1:
            raise InputError(f"similar takes the embeddings of one document; got those of {len(embeddings)}")
        return SimilarQuery(embeddings, None, request)
    if text is not None:
        check_query(text)
        made = source.get().encode_documents([text]) if kinds else Embeddings()
        return SimilarQuery(made, [text[:MAX_CHARACTERS]] if reads_text else None, request)
    check_type("the id of a document", id, str, "text", DocumentError)
    assert id is not None
    number = snapshot.lookup([id]).get(id)
    if number is None:
        raise DocumentError(f"there is no document {shown(id)} in this index; check the id, or give a text")
    (stored,) = snapshot.fetch([number])
    words = with_title(stored.title, stored.text)[:MAX_CHARACTERS]
    return SimilarQuery(
        stored_embeddings(snapshot, stored, kinds), [words] if reads_text else None, request, exclude=number
    )


def _without_words(request: SearchRequest, spec: EmbeddingSpec) -> SearchRequest:
    """Hybrid search by dense and multi vectors. They say what a text is about; its words and terms would find texts
    that share many of them. An index with neither is searched by its terms or its words."""
    if request.mode != "hybrid" or request.params is not None:
        return request
    kinds = [kind for kind in ("dense", "multi") if getattr(spec, kind) is not None]
    if len(kinds) == 2:
        sparse = None if spec.sparse is None else 0.0
        return replace(request, params=HybridParams(bm25=0.0, sparse=sparse))
    return replace(request, mode=kinds[0] if kinds else "sparse" if spec.sparse is not None else "bm25")


def _kinds(request: SearchRequest, spec: EmbeddingSpec) -> list[str]:
    """The kinds of embeddings that the search reads."""
    kinds = [kind for kind in ("dense", "sparse", "multi") if getattr(spec, kind) is not None]
    if isinstance(request.params, HybridParams):
        return [kind for kind in kinds if getattr(request.params, kind) != 0]
    return kinds if request.mode == "hybrid" else [kind for kind in kinds if kind in find_mode(request.mode).needs]
