"""`PlaitDocumentStore`: a plait index with the calls of a Haystack document store, and their async twins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from haystack import default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy

from plait.checks import shown
from plait.errors import ConfigError
from plait.index import Index
from plait.integrations.filters.conditions import ALWAYS
from plait.integrations.haystack.documents import EXTRA, from_plait, to_plait
from plait.integrations.haystack.filters import haystack_filter
from plait.integrations.opening import IndexOrPath, as_index
from plait.records import Document as PlaitDocument

SAVED_OPTIONS = (str, int, float, bool, type(None))


class PlaitDocumentStore:
    """Stores documents in a plait index, which encodes them itself: no embedder is needed.

    `index` is an open index or the path of one, opened when it is first used; `options` are those of `plait.open`,
    such as create=True. Embeddings, sparse embeddings and blobs of documents are stored and returned, and not searched.
    """

    def __init__(self, index: IndexOrPath, **options: Any) -> None:
        if isinstance(index, Index):
            as_index(index, **options)  # refuses options
        self._given, self._options = index, options
        self._opened: Index | None = index if isinstance(index, Index) else None

    @property
    def index(self) -> Index:
        if self._opened is None:
            self._opened = as_index(self._given, **self._options)
        return self._opened

    def to_dict(self) -> dict[str, Any]:
        """The path of the index and its options. Opening it again needs no open index."""
        for name, value in self._options.items():
            if not isinstance(value, SAVED_OPTIONS):
                raise ConfigError(
                    f"{name} is {shown(value)}, which cannot be saved; open the index by its path and a model name"
                )
        path = self._given.path if isinstance(self._given, Index) else Path(self._given)
        return default_to_dict(self, index=str(path), **self._options)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlaitDocumentStore:
        return default_from_dict(cls, data)  # type: ignore[no-any-return]

    # -- the protocol

    def count_documents(self) -> int:
        return len(self.index)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        return [from_plait(document) for document in self._accepted(filters)]

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Writes documents and returns how many were written. Without a policy, a document whose id exists is an
        error, and then nothing is written. Ids are compared with what the index had when the call began: of two calls
        at once that write the same id, the later one replaces it."""
        if not isinstance(documents, list):
            raise ValueError(f"write_documents takes a list of documents; got {shown(documents)}")  # noqa: TRY004
        given = [to_plait(document) for document in documents]
        stored = self.index.snapshot.lookup([document.id for document in given])
        new: dict[str, PlaitDocument] = {}
        for document in given:
            if policy is not DuplicatePolicy.OVERWRITE and (document.id in new or document.id in stored):
                if policy is DuplicatePolicy.SKIP:
                    continue
                raise DuplicateDocumentError(f"a document with the id {document.id!r} exists; choose another policy")
            new[document.id] = document
        self.index.add(new.values())
        return len(new)

    def delete_documents(self, document_ids: list[str]) -> None:
        self.index.delete(document_ids)

    # -- calls that many stores have

    def delete_all_documents(self) -> None:
        self.index.delete(filter=ALWAYS)

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Deletes what the filters accept, and returns how many documents that were."""
        return self.index.delete(filter=haystack_filter(filters) or ALWAYS)

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Changes fields of meta of all documents that the filters accept, and returns how many these are. Nothing is
        encoded again."""
        ids = [document.id for document in self._accepted(filters)]
        self.index.update_metadata(dict.fromkeys(ids, meta))
        return len(ids)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        return self.index.count(haystack_filter(filters))

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """How many values each field has in the documents that the filters accept."""
        values: dict[str, set[Any]] = {name: set() for name in metadata_fields}
        for document in self._accepted(filters):
            for name, seen in values.items():
                seen.update(_typed(value) for value in _values(document, name))
        return {name.removeprefix("meta."): len(seen) for name, seen in values.items()}

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """The type of each field of meta: keyword, long, float or boolean, as of the first document that has it."""
        types: dict[str, dict[str, str]] = {}
        for document in self._accepted(None):
            for name, value in document.metadata.items():
                if name != EXTRA and value is not None:
                    types.setdefault(name, {"type": _type_name(value)})
        return types

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        values = [value for document in self._accepted(None) for value in _values(document, metadata_field)]
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        comparable: list[Any] = numbers or [value for value in values if isinstance(value, str)]
        return {"min": min(comparable, default=None), "max": max(comparable, default=None)}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        """A page of the values of a field, sorted, and how many there are; `search_term` is a part of the value."""
        typed = {
            _typed(value): value for document in self._accepted(filters) for value in _values(document, metadata_field)
        }
        term = (search_term or "").casefold()
        values = [value for _, value in sorted(typed.items()) if term in str(value).casefold()]
        return values[from_ : from_ + size], len(values)

    def _accepted(self, filters: dict[str, Any] | None) -> Iterator[PlaitDocument]:
        for batch in self.index.iterate(filter=haystack_filter(filters)):
            yield from batch

    # -- the same calls for asyncio, in a thread

    async def count_documents_async(self) -> int:
        return await asyncio.to_thread(self.count_documents)

    async def filter_documents_async(self, filters: dict[str, Any] | None = None) -> list[Document]:
        return await asyncio.to_thread(self.filter_documents, filters)

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        return await asyncio.to_thread(self.write_documents, documents, policy)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        await asyncio.to_thread(self.delete_documents, document_ids)

    async def delete_all_documents_async(self) -> None:
        await asyncio.to_thread(self.delete_all_documents)

    async def delete_by_filter_async(self, filters: dict[str, Any]) -> int:
        return await asyncio.to_thread(self.delete_by_filter, filters)

    async def update_by_filter_async(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        return await asyncio.to_thread(self.update_by_filter, filters, meta)

    async def count_documents_by_filter_async(self, filters: dict[str, Any]) -> int:
        return await asyncio.to_thread(self.count_documents_by_filter, filters)

    async def count_unique_metadata_by_filter_async(
        self, filters: dict[str, Any], metadata_fields: list[str]
    ) -> dict[str, int]:
        return await asyncio.to_thread(self.count_unique_metadata_by_filter, filters, metadata_fields)

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        return await asyncio.to_thread(self.get_metadata_fields_info)

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        return await asyncio.to_thread(self.get_metadata_field_min_max, metadata_field)

    async def get_metadata_field_unique_values_async(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        return await asyncio.to_thread(
            self.get_metadata_field_unique_values, metadata_field, search_term, from_, size, filters
        )


def _values(document: PlaitDocument, field: str) -> list[Any]:
    """The values of a field of meta: the elements of a list, or one value; none if it is missing."""
    value: Any = document.metadata
    for key in field.removeprefix("meta.").split("."):
        value = value.get(key) if isinstance(value, dict) else None
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str | int | float)]


def _typed(value: Any) -> tuple[str, Any]:
    """A key by which 1, 1.0, "1" and True are four values."""
    return type(value).__name__, value


def _type_name(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "long" if isinstance(value, int) else "float" if isinstance(value, float) else "keyword"
