"""Haystack: its own test suites, and what they do not test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from haystack import Pipeline, component
from haystack.components.builders import PromptBuilder
from haystack.dataclasses import ByteStream, Document, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.testing.document_store import (
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    DocumentStoreBaseExtendedTests,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
    create_filterable_docs,
)
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
)
from haystack.utils.filters import document_matches_filter

import plait
from encoders import WordEncoder
from integrations.samples import ARTICLES, OverlapScorer
from plait.errors import ConfigError, DocumentError
from plait.integrations.haystack import (
    PlaitDocumentStore,
    PlaitHybridRetriever,
    PlaitRanker,
    PlaitRetriever,
    haystack_filter,
)

pytestmark = pytest.mark.filterwarnings("ignore::plait.UnknownFieldWarning")  # the suites filter by unknown fields


@pytest.fixture
def document_store(tmp_path: Path) -> Iterator[PlaitDocumentStore]:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        yield PlaitDocumentStore(index)


@pytest.fixture
def store(document_store: PlaitDocumentStore) -> PlaitDocumentStore:
    """A store with four articles."""
    document_store.write_documents([article(**fields) for fields in ARTICLES])
    return document_store


def article(id: str, text: str, **meta: Any) -> Document:
    return Document(id=id, content=text, meta=meta)


class TestDocumentStore(
    DocumentStoreBaseExtendedTests,
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
):
    @pytest.fixture
    def document_store(self, tmp_path: Path) -> Iterator[PlaitDocumentStore]:
        with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
            yield PlaitDocumentStore(index)

    def test_write_documents(self, document_store: PlaitDocumentStore) -> None:
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])


class TestDocumentStoreAsync(
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
):
    async def test_write_documents_async(self, document_store: PlaitDocumentStore) -> None:
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])


NOT_ORDERED = ("meta.page", "meta.no_embedding", "id", "content")
VALUES: dict[str, list[Any]] = {
    "meta.number": [2, -2.0, 0, None],
    "meta.no_embedding": [True, None],
    "meta.page": ["100", None],
    "meta.date": ["1972-12-11T19:54:58", "1969-01-01", None],
    "meta.missing.key": [1, None],
    "id": ["x"],
    "content": ["A Foo Document 1"],
}
COMPARISONS = [
    {"field": field, "operator": operator, "value": value}
    for field, values in VALUES.items()
    for operator in ("==", "!=", ">", ">=", "<", "<=", "in", "not in")
    for value in (values if operator not in ("in", "not in") else [values])
    if not (operator in (">", ">=", "<", "<=") and field in NOT_ORDERED)
]


@pytest.mark.parametrize("filters", COMPARISONS, ids=lambda one: f"{one['field']} {one['operator']} {one['value']}")
def test_every_comparison_accepts_what_haystack_accepts(
    document_store: PlaitDocumentStore, filters: dict[str, Any]
) -> None:
    documents = create_filterable_docs()
    document_store.write_documents(documents)
    nested = {"operator": "NOT", "conditions": [filters, {"field": "meta.chapter", "operator": "==", "value": "intro"}]}
    for one in (filters, nested, {"operator": "OR", "conditions": [nested, filters]}):
        expected = [document.id for document in documents if document_matches_filter(one, document)]
        assert [document.id for document in document_store.filter_documents(one)] == expected


@pytest.mark.parametrize(
    "filters",
    [
        {"field": "embedding", "operator": "==", "value": [0.1]},
        {"field": "meta.tags", "operator": "==", "value": ["a"]},
        {"field": "meta.tags", "operator": "==", "value": {"a": 1}},
        {"field": "meta.date", "operator": ">", "value": "2020-01-01T00:00:00+02:00"},
        {"field": "meta.date", "operator": ">", "value": datetime(2020, 1, 1, tzinfo=UTC)},
        {"field": "meta.number", "operator": ">", "value": True},
        {"field": "meta.name", "operator": "like", "value": "a"},
        {"field": 3, "operator": "==", "value": "a"},
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": "a"},
        {"operator": "AND", "conditions": ["a"]},
        {"field": "meta.", "operator": "==", "value": 1},
    ],
)
def test_what_cannot_be_translated_is_refused(store: PlaitDocumentStore, filters: dict[str, Any]) -> None:
    with pytest.raises(FilterError):
        store.filter_documents(filters)


def test_no_value_of_a_filter_becomes_syntax() -> None:
    hostile = '" or id != ""'
    assert (
        haystack_filter({"field": "meta.a`b", "operator": "==", "value": hostile}) == '`a``b` = "\\" or id != \\"\\""'
    )


def test_a_document_comes_back_as_it_was(document_store: PlaitDocumentStore) -> None:
    document = Document(
        content="A loom",
        meta={"id": 3, "text": "x", "nested": {"a": [1, 2]}},
        blob=ByteStream(b"\x00\xff", meta={"name": "a.bin"}, mime_type="application/x"),
        embedding=[0.25, 1.0],
        sparse_embedding=SparseEmbedding([1, 7], [0.5, 2.0]),
    )
    document_store.write_documents([document])
    assert document_store.filter_documents() == [document]


def test_a_store_is_opened_again_by_its_path(tmp_path: Path) -> None:
    document = Document(id="loom", content="A loom", meta={"year": 2019}, embedding=[0.5])
    for _ in range(2):
        store = PlaitDocumentStore(tmp_path / "index", create=True, encoder=WordEncoder())
        store.write_documents([document], DuplicatePolicy.SKIP)
        assert store.filter_documents() == [document]
        store.index.close()


def test_a_document_without_content_is_refused(document_store: PlaitDocumentStore) -> None:
    with pytest.raises(DocumentError, match="no content"):
        document_store.write_documents([Document(blob=ByteStream(b"x"))])


def test_repeated_documents_in_one_call_follow_the_policy(document_store: PlaitDocumentStore) -> None:
    twice = [Document(id="1", content="first"), Document(id="1", content="second")]
    with pytest.raises(DuplicateDocumentError):
        document_store.write_documents(twice)
    assert document_store.write_documents(twice, DuplicatePolicy.SKIP) == 1
    assert document_store.filter_documents()[0].content == "first"
    assert document_store.write_documents(twice, DuplicatePolicy.OVERWRITE) == 1
    assert document_store.filter_documents()[0].content == "second"


@pytest.mark.parametrize("mode", ["hybrid", "multi", "dense", "bm25"])
def test_every_mode_retrieves(store: PlaitDocumentStore, mode: str) -> None:
    (document,) = PlaitRetriever(store, mode=mode, top_k=1).run("loom crosses warp")["documents"]
    assert (document.id, document.meta["year"]) == ("loom", 2019)
    assert document.score is not None


def test_filters_of_a_call_follow_the_policy(store: PlaitDocumentStore) -> None:
    english = {"field": "meta.lang", "operator": "==", "value": "en"}
    recent = {"field": "meta.year", "operator": ">=", "value": 2021}
    replaced = PlaitRetriever(store, filters=english).run("loom", filters=recent)["documents"]
    merged = PlaitRetriever(store, filters=english, filter_policy="merge").run("loom", filters=recent)["documents"]
    assert {document.id for document in replaced} == {"intro", "webstuhl", "heart"}
    assert {document.id for document in merged} == {"intro", "heart"}


def test_weights_of_the_hybrid_retriever_count(store: PlaitDocumentStore) -> None:
    both = PlaitHybridRetriever(store, top_k=1).run("loom")["documents"]
    words = PlaitHybridRetriever(store, dense=0, multi=0, bm25=1).run("loom")["documents"]
    assert both[0].id == "loom"
    assert [document.id for document in words] == ["loom"]  # no other document has the word


@pytest.mark.parametrize("kind", [PlaitRetriever, PlaitHybridRetriever])
def test_a_count_of_0_is_refused_by_retrievers(store: PlaitDocumentStore, kind: Any) -> None:
    with pytest.raises(ConfigError, match="top_k"):
        kind(store, top_k=0)
    with pytest.raises(ConfigError, match="k is 0"):
        kind(store).run("loom", top_k=0)


def test_passages_are_what_a_prompt_needs(document_store: PlaitDocumentStore) -> None:
    text = " ".join(["hay"] * 100 + ["needle"] + ["hay"] * 100)
    document_store.write_documents([Document(id="long", content=text)])
    (document,) = PlaitRetriever(document_store, content="passages").run("needle")["documents"]
    assert document.content is not None
    assert "needle" in document.content
    assert len(document.content) < len(text)


async def test_retrievers_and_the_ranker_run_in_asyncio(store: PlaitDocumentStore) -> None:
    result = (await PlaitRetriever(store, top_k=2).run_async("loom"))["documents"]
    assert result[0].id == "loom"
    assert (await PlaitHybridRetriever(store).run_async("loom"))["documents"][0].id == "loom"
    assert (await PlaitRanker(OverlapScorer()).run_async("loom", result))["documents"][0].id == "loom"


def test_the_ranker_reorders_and_keeps_the_best() -> None:
    documents = [Document(content=text) for text in ("a cat", "a loom crosses warp", "a loom")]
    best = PlaitRanker(OverlapScorer(), top_k=2).run("loom warp", documents)["documents"]
    assert [(document.content, document.score) for document in best] == [("a loom crosses warp", 2.0), ("a loom", 1.0)]
    assert documents[1].score is None
    assert PlaitRanker(OverlapScorer()).run("loom", [])["documents"] == []


def test_components_are_saved_and_loaded(tmp_path: Path) -> None:
    store = PlaitDocumentStore(str(tmp_path / "index"), create=True)
    for retriever in (
        PlaitRetriever(store, top_k=3, mode="multi", filter_policy="merge", search={"min_score": 0.1}),
        PlaitHybridRetriever(store, bm25=0.2, fusion="rank"),
    ):
        again = type(retriever).from_dict(retriever.to_dict())
        assert again.to_dict() == retriever.to_dict()
        assert isinstance(again.document_store, PlaitDocumentStore)
    assert (
        PlaitRanker.from_dict(PlaitRanker("my-cross", top_k=2).to_dict()).to_dict()
        == PlaitRanker("my-cross", top_k=2).to_dict()
    )
    pipeline = Pipeline()
    pipeline.add_component("retriever", PlaitRetriever(store))
    assert (
        Pipeline.loads(pipeline.dumps(), allowed_modules=["plait.integrations.haystack"]).to_dict()
        == pipeline.to_dict()
    )


def test_an_encoder_object_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="encoder"):
        PlaitDocumentStore(tmp_path / "index", create=True, encoder=WordEncoder()).to_dict()
    with pytest.raises(ConfigError, match="model"):
        PlaitRanker(OverlapScorer()).to_dict()


@component
class FakeGenerator:
    """A language model that answers with the last line of its prompt."""

    @component.output_types(replies=list[str])
    def run(self, prompt: str) -> dict[str, list[str]]:
        return {"replies": [prompt.strip().splitlines()[-1]]}


def test_a_pipeline_answers_from_documents(store: PlaitDocumentStore) -> None:
    """Retrieval-augmented generation, with a language model that is fake."""
    pipeline = Pipeline()
    pipeline.add_component("retriever", PlaitRetriever(store, top_k=2))
    pipeline.add_component("ranker", PlaitRanker(OverlapScorer(), top_k=1))
    template = "{{ question }}\n{% for document in documents %}{{ document.content }}\n{% endfor %}"
    pipeline.add_component("prompt", PromptBuilder(template, required_variables="*"))
    pipeline.add_component("model", FakeGenerator())
    pipeline.connect("retriever.documents", "ranker.documents")
    pipeline.connect("ranker.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "model.prompt")
    question = "what does a loom do"
    inputs = {"retriever": {"query": question}, "ranker": {"query": question}, "prompt": {"question": question}}
    assert pipeline.run(inputs)["model"]["replies"] == ["A loom crosses warp and weft."]
