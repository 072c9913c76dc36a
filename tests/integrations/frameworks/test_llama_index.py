"""LlamaIndex: the vector store, the retriever and the reranker, alone and in its own engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import IndexNode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

import plait
from encoders import WordEncoder
from integrations.samples import ARTICLES, OverlapScorer, make_index
from plait.errors import ConfigError, DocumentError, FilterError, QueryError
from plait.integrations.filters.llama_index import OPERATORS
from plait.integrations.llama_index import PlaitReranker, PlaitRetriever, PlaitVectorStore

pytestmark = pytest.mark.filterwarnings("ignore::plait.UnknownFieldWarning")


def node(id: str, text: str, source: str = "", **metadata: Any) -> TextNode:
    made = TextNode(id_=id, text=text, metadata=metadata)
    if source:
        made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
    return made


NODES = [
    node(article["id"], article["text"], source=f"file-{article['lang']}", year=article["year"], lang=article["lang"],
         tags=article.get("tags", []))
    for article in ARTICLES
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PlaitVectorStore]:
    store = PlaitVectorStore(tmp_path / "index", create=True, encoder=WordEncoder())
    store.add(NODES)
    yield store
    store.client.close()


def ids(store: PlaitVectorStore, text: str, k: int = 9, **query: Any) -> list[str]:
    result = store.query(VectorStoreQuery(query_str=text, similarity_top_k=k, **query))
    assert result.ids is not None
    return list(result.ids)


def filters(*conditions: tuple[str, FilterOperator, Any], condition: str = "and") -> MetadataFilters:
    return MetadataFilters(
        filters=[MetadataFilter(key=key, operator=operator, value=value) for key, operator, value in conditions],
        condition=FilterCondition(condition),
    )


def test_nodes_come_back_as_they_were(store: PlaitVectorStore) -> None:
    nodes = [*NODES, IndexNode(id_="i", text="A link", index_id="other", metadata={"a": {"b": 1}})]
    store.add(nodes[-1:])
    for original, again in zip(nodes, store.get_nodes([one.node_id for one in nodes]), strict=True):
        assert again.to_dict() == original.to_dict()
        assert type(again) is type(original)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("default", "loom"), ("hybrid", "loom"), ("text_search", "loom")],
)
def test_query_modes_find_the_node(store: PlaitVectorStore, mode: str, expected: str) -> None:
    assert ids(store, "loom crosses warp", k=1, mode=VectorStoreQueryMode(mode)) == [expected]


def test_alpha_0_is_full_text_alone(store: PlaitVectorStore) -> None:
    assert ids(store, "loom", mode=VectorStoreQueryMode.HYBRID, alpha=0.0) == ["loom"]
    assert len(ids(store, "loom", mode=VectorStoreQueryMode.HYBRID, alpha=0.5)) > 1


def test_other_modes_are_refused(store: PlaitVectorStore) -> None:
    with pytest.raises(ConfigError, match="svm"):
        ids(store, "loom", mode=VectorStoreQueryMode.SVM)


def test_an_embedding_is_searched_if_there_is_no_text(store: PlaitVectorStore) -> None:
    dense = store.client.encoder.encode_queries(["loom crosses warp"]).dense
    assert dense is not None
    result = store.query(VectorStoreQuery(query_embedding=dense[0].tolist(), similarity_top_k=1))
    assert result.ids == ["loom"]
    with pytest.raises(QueryError):
        store.query(VectorStoreQuery())


CONDITIONS: list[tuple[str, FilterOperator, Any]] = [
    ("year", FilterOperator.EQ, 2019),
    ("year", FilterOperator.NE, 2019),
    ("year", FilterOperator.GT, 2021),
    ("year", FilterOperator.GTE, 2021),
    ("year", FilterOperator.LT, 2021),
    ("year", FilterOperator.LTE, 2021),
    ("lang", FilterOperator.IN, ["de", "fr"]),
    ("lang", FilterOperator.NIN, ["de", "fr"]),
    ("missing", FilterOperator.NE, "x"),
    ("missing", FilterOperator.NIN, ["x"]),
    ("missing", FilterOperator.EQ, "x"),
    ("tags", FilterOperator.CONTAINS, "tool"),
    ("tags", FilterOperator.ANY, ["tool", "organ"]),
    ("tags", FilterOperator.ALL, ["tool", "cloth"]),
    ("tags", FilterOperator.IS_EMPTY, None),
    ("missing", FilterOperator.IS_EMPTY, None),
    ("lang", FilterOperator.TEXT_MATCH_INSENSITIVE, "E"),
]


@pytest.mark.parametrize("condition", ["and", "or", "not"])
@pytest.mark.parametrize("one", CONDITIONS, ids=lambda one: f"{one[0]} {one[1].value}")
def test_filters_accept_what_llama_index_accepts(
    store: PlaitVectorStore, one: tuple[str, FilterOperator, Any], condition: str
) -> None:
    both = filters(one, ("year", FilterOperator.GTE, 2022), condition=condition)
    by_id = {one.node_id: one.metadata for one in NODES}
    accepts = build_metadata_filter_fn(lambda id: by_id[id], both)
    assert {one.node_id for one in store.get_nodes(filters=both)} == {id for id in by_id if accepts(id)}


def test_filters_may_be_nested(store: PlaitVectorStore) -> None:
    inner = filters(("lang", FilterOperator.EQ, "de"), ("year", FilterOperator.EQ, 2019), condition="or")
    outer = MetadataFilters(filters=[inner, MetadataFilter(key="year", operator=FilterOperator.LT, value=2020)])
    assert ids(store, "loom", filters=outer) == ["loom"]


def test_every_operator_is_translated_or_refused_by_name() -> None:
    known = {*OPERATORS, "is_empty"}
    assert {operator.value for operator in FilterOperator} - known == {"text_match"}
    assert known <= {operator.value for operator in FilterOperator}


def test_text_match_is_refused(store: PlaitVectorStore) -> None:
    with pytest.raises(FilterError, match="text_match"):
        ids(store, "loom", filters=filters(("lang", FilterOperator.TEXT_MATCH, "e")))


def test_queries_within_documents_and_nodes(store: PlaitVectorStore) -> None:
    assert ids(store, "loom", doc_ids=["file-de"]) == ["webstuhl"]
    assert set(ids(store, "loom", node_ids=["heart", "intro", "unknown"])) == {"heart", "intro"}
    assert ids(store, "loom", node_ids=["unknown"]) == []


def test_nodes_are_deleted_by_document_by_id_and_by_filter(store: PlaitVectorStore) -> None:
    store.delete("file-de")
    assert "webstuhl" not in store.client
    store.delete_nodes(["intro"])
    store.delete_nodes(["heart", "loom"], filters(("year", FilterOperator.EQ, 2019)))
    assert [one.node_id for one in store.get_nodes()] == ["heart"]
    for nothing in (None, MetadataFilters(filters=[])):
        with pytest.raises(ConfigError, match="clear"):
            store.delete_nodes(filters=nothing)
    store.clear()
    assert len(store.client) == 0


async def test_asyncio(store: PlaitVectorStore) -> None:
    await store.async_add([node("new", "A spindle twists yarn.", source="s")])
    result = await store.aquery(VectorStoreQuery(query_str="spindle twists yarn", similarity_top_k=1))
    assert result.ids == ["new"]
    assert [one.node_id for one in await store.aget_nodes(["new"])] == ["new"]
    await store.adelete("s")
    await store.adelete_nodes(["loom"])
    assert len(store.client) == len(NODES) - 1
    retriever = PlaitRetriever(store.client, similarity_top_k=1)
    assert (await retriever.aretrieve("heart pumps"))[0].node.node_id == "heart"
    await store.aclear()


def test_a_node_without_text_is_refused(store: PlaitVectorStore) -> None:
    with pytest.raises(DocumentError, match="no text"):
        store.add([TextNode(text=" ")])


def test_a_retriever_gives_passages_of_any_index(tmp_path: Path) -> None:
    with make_index(tmp_path, long=True) as index:
        (passage,) = PlaitRetriever(index, similarity_top_k=1).retrieve("needle")
        (document,) = PlaitRetriever(index, similarity_top_k=1, content="document").retrieve("needle")
        german = PlaitRetriever(index, similarity_top_k=9, filters=filters(("lang", FilterOperator.EQ, "de")))
        assert [one.node.node_id for one in german.retrieve("loom")] == ["webstuhl"]
    assert "needle" in passage.text
    start, end = passage.node.start_char_idx, passage.node.end_char_idx
    assert document.text[start:end] == passage.text
    assert passage.node.metadata["title"] == "Haystack"


@pytest.mark.parametrize("wrong", [{"similarity_top_k": 0}, {"content": "x"}, {"search": {"depth": 1}}])
def test_a_retriever_refuses_what_cannot_work(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with make_index(tmp_path) as index, pytest.raises(ConfigError):
        PlaitRetriever(index, **wrong)


def test_a_reranker_reorders_and_keeps_the_best() -> None:
    nodes = [NodeWithScore(node=TextNode(text=text), score=1.0) for text in ("a cat", "a loom warp", "a loom")]
    best = PlaitReranker(OverlapScorer(), top_n=2).postprocess_nodes(nodes, query_str="loom warp")
    assert [(one.text, one.score) for one in best] == [("a loom warp", 2.0), ("a loom", 1.0)]
    with pytest.raises(QueryError):
        PlaitReranker(OverlapScorer()).postprocess_nodes(nodes)


async def test_the_reranker_runs_in_asyncio() -> None:
    nodes = [NodeWithScore(node=TextNode(text=text), score=1.0) for text in ("a cat", "a loom")]
    best = await PlaitReranker(OverlapScorer(), top_n=1).apostprocess_nodes(nodes, query_str="loom warp")
    assert [one.text for one in best] == ["a loom"]


def test_a_vector_store_index_is_built_and_queried(tmp_path: Path) -> None:
    """plait encodes: the embedding model of LlamaIndex has one dimension and says nothing."""
    store = PlaitVectorStore(tmp_path / "index", create=True, encoder=WordEncoder())
    documents = [LlamaDocument(doc_id=article["id"], text=article["text"]) for article in ARTICLES]
    index = VectorStoreIndex.from_documents(
        documents,
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=MockEmbedding(embed_dim=1),
    )
    (result,) = index.as_retriever(similarity_top_k=1).retrieve("loom crosses warp")
    assert result.text == "A loom crosses warp and weft."
    index.delete_ref_doc("loom")
    assert len(store.client) == len(ARTICLES) - 1
    store.client.close()
    again = PlaitVectorStore(tmp_path / "index", encoder=WordEncoder())
    index = VectorStoreIndex.from_vector_store(again, embed_model=MockEmbedding(embed_dim=1))
    assert index.as_retriever(similarity_top_k=1).retrieve("heart pumps")[0].text.startswith("The heart")
    again.client.close()


def test_an_engine_answers_from_passages(tmp_path: Path) -> None:
    """Retrieval-augmented generation, with a language model that repeats its prompt."""
    with make_index(tmp_path) as index:
        engine = RetrieverQueryEngine.from_args(
            PlaitRetriever(index, similarity_top_k=3),
            llm=MockLLM(),
            node_postprocessors=[PlaitReranker(OverlapScorer(), top_n=1)],
        )
        answer = engine.query("what does a loom do")
    assert "A loom crosses warp and weft." in str(answer)
    assert [one.node.node_id for one in answer.source_nodes] == ["loom"]


def test_an_open_index_takes_no_options(tmp_path: Path) -> None:
    with make_index(tmp_path) as index, pytest.raises(ConfigError, match="create"):
        PlaitVectorStore(index, create=True)
    assert isinstance(plait.open(tmp_path / "index", encoder=WordEncoder()), plait.Index)
