"""An index as the holder of a key sees it. Routes and MCP tools read documents only through `IndexAccess`.

A key with a filter sees the documents that its filter accepts, and nothing of others: hidden documents are not found by
searches, counts, facets, ids or explanations, and errors about them are those of documents that do not exist. Counts of
the whole index that searches report (stages, document frequencies, corrected words) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from plait.checks import shown
from plait.errors import FilterError, QueryError
from plait.filters import compile_filter
from plait.filters.join import all_of
from plait.filters.unknown_fields import collect_messages
from plait.records import Document, Explanation, Hit, Span, hit_fields
from plait.search.hits import passage_spans
from plait.serve.auth import Principal
from plait.serve.cursor import read_cursor, write_cursor
from plait.serve.errors import ApiError
from plait.serve.protocol import IndexHost, NotAllowedError

if TYPE_CHECKING:
    from plait.deadline import Deadline
    from plait.embeddings import Embeddings
    from plait.index import Index
    from plait.search.trace import Trace
    from plait.searcher import SearchKeywords
    from plait.storage.info import StoreInfo
    from plait.storage.snapshot import Snapshot, StoredDocument

T = TypeVar("T")


class IndexAccess:
    """The calls of an index, for one principal."""

    def __init__(self, host: IndexHost, principal: Principal, secret: str) -> None:
        principal.check_index(host.name)
        self.host, self.principal, self._secret = host, principal, secret
        self._key_filter = principal.filter

    # -- searching

    async def search(
        self, queries: Sequence[str], k: int, keywords: Mapping[str, Any], *, deadline: Deadline
    ) -> tuple[list[list[Hit]], Trace | None, tuple[str, ...]]:
        """Hits of each query, the trace and warnings."""
        given = await self._guarded(keywords, deadline)
        answer = await self.host.search(queries, k, given, deadline=deadline)
        hits = answer.hits
        if self._key_filter is not None:
            hits = [[_without_statistics(hit) for hit in one] for one in hits]
        partial = (answer.partial,) if answer.partial else ()
        return hits, answer.trace, partial if self._key_filter is not None else (*partial, *answer.warnings)

    async def similar(
        self,
        k: int,
        keywords: Mapping[str, Any],
        *,
        id: str | None,
        text: str | None,
        embeddings: Embeddings | None,
        trace: Trace | None,
        deadline: Deadline,
    ) -> list[Hit]:
        given = await self._guarded(keywords, deadline)
        if id is not None:
            await self._check_visible(id, deadline)

        def call(index: Index) -> list[Hit]:
            keywords: SearchKeywords = {**given, "trace": trace}
            return index.similar(id, k, text=text, embeddings=embeddings, **keywords)

        hits = await self._read(call, deadline)
        return hits if self._key_filter is None else [_without_statistics(hit) for hit in hits]

    async def explain(self, query: str, id: str, keywords: Mapping[str, Any], *, deadline: Deadline) -> Explanation:
        given = await self._guarded(keywords, deadline)
        await self._check_visible(id, deadline)
        explanation = await self._read(lambda index: index.explain(query, id, **given), deadline)
        return explanation if self._key_filter is None else _plain(explanation)

    async def facets(
        self, field: str, query: str | None, k: int, keywords: Mapping[str, Any], *, deadline: Deadline
    ) -> dict[str, Any]:
        given = await self._guarded(keywords, deadline)
        facets = await self._read(lambda index: index.facets(field, query, k=k, **given), deadline)
        return {
            "field": facets.field,
            "counts": [{"value": one.value, "count": one.count} for one in facets.counts],
            "n_values": facets.n_values,
            "n_documents": facets.n_documents,
        }

    # -- documents

    async def count(self, filter: str | None, *, deadline: Deadline) -> int:
        joined = self.joined(filter)
        return await self._read(lambda index: index.count(joined), deadline)

    async def get(self, ids: Sequence[str], *, deadline: Deadline) -> list[Document | None]:
        """The documents of these ids; None for those that do not exist or are hidden."""
        key_filter = self._key_filter
        if key_filter is None:
            return await self._read(lambda index: index.get(ids), deadline)

        def call(index: Index) -> list[Document | None]:
            snapshot = index.snapshot
            visible = _visible(snapshot, ids, key_filter)
            stored = dict(zip(visible, snapshot.fetch(list(visible.values())), strict=True))
            return [None if id not in stored else _document(stored[id]) for id in ids]

        return await self._read(call, deadline)

    async def get_with_passages(self, id: str, *, deadline: Deadline) -> tuple[Document, list[Span]] | None:
        """A document and the spans of its passages, of one state of the index; None as in `get`."""
        key_filter = self._key_filter

        def call(index: Index) -> tuple[Document, list[Span]] | None:
            snapshot = index.snapshot
            numbers = snapshot.lookup([id]) if key_filter is None else _visible(snapshot, [id], key_filter)
            if id not in numbers:
                return None
            stored = snapshot.fetch([numbers[id]])[0]
            segment = next(one for one in snapshot.segments if one.number == stored.segment)
            return _document(stored), passage_spans(segment, stored)

        try:
            return await self._read(call, deadline)
        except NotAllowedError:  # a collection of shards does not tell the passages
            (document,) = await self.get([id], deadline=deadline)
            return None if document is None else (document, [])

    async def scroll(
        self, limit: int, cursor: str | None, filter: str | None, *, deadline: Deadline
    ) -> tuple[list[Document], str | None]:
        """A page of documents, and the cursor of the next page if there is one.

        The order is that in which documents were added or last changed. A document that stays as it is comes exactly
        once, whatever is written between two pages.
        """
        joined = self.joined(filter)
        scroll = "\0".join((self.host.name, self.principal.id, joined or ""))
        after = 0 if cursor is None else read_cursor(self._secret, scroll, cursor)

        def call(index: Index) -> tuple[list[Document], int | None]:
            snapshot = index.snapshot
            numbers = snapshot.batch_after(after, limit + 1, joined)
            documents = [_document(stored) for stored in snapshot.fetch(numbers[:limit])]
            return documents, numbers[limit - 1] if len(numbers) > limit else None

        documents, last = await self._read(call, deadline)
        return documents, None if last is None else write_cursor(self._secret, scroll, last)

    async def info(self, *, deadline: Deadline) -> tuple[StoreInfo, int]:
        """The facts of the index, and the number of documents that the key sees."""
        facts = await self.host.info()
        n_documents = facts.documents if self._key_filter is None else await self.count(None, deadline=deadline)
        return facts, n_documents

    @property
    def is_filtered(self) -> bool:
        return self._key_filter is not None

    # -- what the filter of the key does

    def joined(self, filter: str | None) -> str | None:
        """The filter of a request and that of the key, as one."""
        if self._key_filter is None or filter is None:
            return filter if self._key_filter is None else self._key_filter
        compile_filter(filter)  # alone, so that an error shows nothing of the other
        try:
            joined = all_of([self._key_filter, filter])
            compile_filter(joined)
        except FilterError:
            raise FilterError("the filter is too long or too deep for this key; simplify it") from None
        return joined

    async def _guarded(self, keywords: Mapping[str, Any], deadline: Deadline) -> SearchKeywords:
        """The keywords of a search with the filter of the key."""
        given = {**keywords, "filter": self.joined(keywords.get("filter"))}
        candidates, key_filter = given.get("candidates"), self._key_filter
        if candidates is not None and key_filter is not None:
            ids: Sequence[str] = candidates
            visible = await self._read(lambda index: _visible(index.snapshot, ids, key_filter), deadline)
            if missing := [id for id in dict.fromkeys(ids) if id not in visible]:
                raise QueryError(f"{len(missing)} of the candidates are not in the index: {shown(missing[0])}")
        return cast("SearchKeywords", given)

    async def _check_visible(self, id: str, deadline: Deadline) -> None:
        """Raises the error of an id that does not exist for a hidden one as well."""
        (document,) = await self.get([id], deadline=deadline)
        if document is None:
            raise unknown_document(id)

    async def _read(self, call: Callable[[Index], T], deadline: Deadline) -> T:
        return await self.host.read(_quiet(call), deadline=deadline)


def unknown_document(id: str) -> ApiError:
    return ApiError(404, "unknown_document", f"there is no document {shown(id)} in this index")


def _quiet(call: Callable[[Index], T]) -> Callable[[Index], T]:
    """Without warnings of unknown fields, which name fields of all documents."""

    def run(index: Index) -> T:
        with collect_messages():
            return call(index)

    return run


def _document(stored: StoredDocument) -> Document:
    return Document(stored.id, stored.text, stored.title, stored.metadata, stored.sections, stored.origin)


def _visible(snapshot: Snapshot, ids: Sequence[str], key_filter: str) -> dict[str, int]:
    """The numbers of the documents of these ids that a filter accepts."""
    numbers = snapshot.lookup(ids)
    accepted = set(snapshot.filtered(key_filter).tolist())
    return {id: number for id, number in numbers.items() if number in accepted}


def _without_statistics(hit: Hit) -> Hit:
    return hit if hit.explanation is None else replace(hit, explanation=_plain(hit.explanation))


def _plain(explanation: Explanation) -> Explanation:
    """Without what is counted over all documents."""
    bm25 = explanation.bm25
    words = None if bm25 is None else tuple(replace(word, documents=0, idf=0.0) for word in bm25)
    return replace(explanation, bm25=words, corrections=())


def document_fields(document: Document) -> dict[str, Any]:
    """A document as plain data: as it was added."""
    return {"id": document.id, "title": document.title, "text": document.text, "metadata": dict(document.metadata)}


def hits_fields(hits: Sequence[Hit], *, offset: int, full: bool) -> list[dict[str, Any]]:
    """Hits as plain data. Confidences are not rounded, as they are for people: a client gives those of the index."""
    fields = [hit_fields(rank, hit, full=full) for rank, hit in enumerate(hits, offset + 1)]
    for one, hit in zip(fields, hits, strict=True):
        if hit.confidence is not None:
            one["confidence"] = hit.confidence
    return fields
