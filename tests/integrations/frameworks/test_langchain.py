"""LangChain: its own test suites, and what they do not test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

import plait
from encoders import WordEncoder
from integrations.samples import ARTICLES, OverlapScorer, make_index
from plait.errors import ConfigError, DocumentError, EncoderMismatchError, FilterError
from plait.integrations.langchain import PlaitReranker, PlaitRetriever, PlaitVectorStore


class TestVectorStore(VectorStoreIntegrationTests):
    """The suite, with an encoder of plait."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[PlaitVectorStore]:
        store = PlaitVectorStore(tmp_path / "index", create=True, encoder=WordEncoder())
        yield store
        store.index.close()


class TestVectorStoreWithEmbeddings(VectorStoreIntegrationTests):
    """The suite, with embeddings of LangChain."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[PlaitVectorStore]:
        store = PlaitVectorStore(tmp_path / "index", create=True, embedding=self.get_embeddings())
        yield store
        store.index.close()


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _index(self, tmp_path: Path) -> Iterator[None]:
        self.index = make_index(tmp_path)
        yield
        self.index.close()

    @property
    def retriever_constructor(self) -> type[PlaitRetriever]:
        return PlaitRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"index": self.index}

    @property
    def retriever_query_example(self) -> str:
        return "what does a loom do"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PlaitVectorStore]:
    with make_index(tmp_path) as index:
        yield PlaitVectorStore(index)


def ids(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


@pytest.mark.parametrize("mode", ["dense", "multi", "bm25", "hybrid"])
def test_every_mode_finds_the_document(store: PlaitVectorStore, mode: str) -> None:
    assert ids(store.similarity_search("loom crosses warp", k=1, mode=mode)) == ["loom"]


def test_metadata_come_back_as_they_were_also_from_a_store_that_is_opened_again(tmp_path: Path) -> None:
    metadata = {"id": 3, "text": "ü", "title": "", "none": None, "yes": True, "half": 0.5, "deep": {"a.b": [1, []]}}
    store = PlaitVectorStore(tmp_path / "index", create=True, encoder=WordEncoder())
    store.add_texts(["a loom"], [metadata], ids=["loom"])
    store.index.close()
    again = PlaitVectorStore(tmp_path / "index", encoder=WordEncoder())
    assert again.get_by_ids(["loom"])[0].metadata == again.similarity_search("loom")[0].metadata == metadata
    with pytest.raises(DocumentError, match="when"):
        again.add_texts(["a heart"], [{"when": datetime(2020, 1, 1, tzinfo=UTC)}])
    again.index.close()


def test_filters_are_plait_filters_or_dictionaries(store: PlaitVectorStore) -> None:
    by_text = store.similarity_search("loom", k=9, filter="year >= 2020 and lang = 'en'")
    by_dict = store.similarity_search("loom", k=9, filter={"year": {"$gte": 2020}, "lang": "en"})
    assert (
        set(ids(by_text)) == set(ids(by_dict)) == {a["id"] for a in ARTICLES if a["year"] >= 2020 and a["lang"] == "en"}
    )


def test_a_filter_that_cannot_be_read_is_an_error(store: PlaitVectorStore) -> None:
    with pytest.raises(FilterError, match=r"\$regex"):
        store.similarity_search("loom", filter={"lang": {"$regex": "e."}})


def test_an_unknown_option_is_an_error(store: PlaitVectorStore) -> None:
    with pytest.raises(ConfigError, match="fetch"):
        store.similarity_search("loom", fetch=3)


def test_a_question_is_plain_text(store: PlaitVectorStore) -> None:
    assert ids(store.similarity_search('loom: "warp" -crosses', k=1)) == ["loom"]


def test_relevance_scores_are_from_0_to_1_and_a_threshold_applies(store: PlaitVectorStore) -> None:
    scored = store.similarity_search_with_relevance_scores("loom crosses warp", k=4)
    assert all(0 <= score <= 1 for _, score in scored)
    above = store.similarity_search_with_relevance_scores("loom crosses warp", k=4, score_threshold=scored[0][1])
    assert ids([document for document, _ in above]) == ["loom"]
    with pytest.raises(ConfigError, match="bm25"):
        store.similarity_search_with_relevance_scores("loom", mode="bm25")


def test_marginal_relevance_leaves_out_a_copy(store: PlaitVectorStore) -> None:
    store.add_texts(["A loom crosses warp and weft!"], ids=["copy"])
    similar = ids(store.similarity_search("loom crosses warp and weft", k=2, mode="dense"))
    diverse = ids(store.max_marginal_relevance_search("loom crosses warp and weft", k=2, lambda_mult=0.1))
    assert set(similar) == {"loom", "copy"}
    assert set(diverse) != {"loom", "copy"}


def test_a_vector_of_the_caller_is_searched(store: PlaitVectorStore) -> None:
    vector = store.index.encoder.encode_queries(["loom crosses warp"]).dense
    assert vector is not None
    assert ids(store.similarity_search_by_vector(vector[0].tolist(), k=1)) == ["loom"]


def test_documents_are_deleted_by_filter_and_all_at_once(store: PlaitVectorStore) -> None:
    store.delete(filter={"lang": "de"})
    assert len(store.index) == sum(article["lang"] != "de" for article in ARTICLES)
    store.delete()
    assert len(store.index) == 0


def test_texts_metadata_and_ids_must_be_as_many(store: PlaitVectorStore) -> None:
    with pytest.raises(DocumentError, match="2 texts, 1 metadatas"):
        store.add_texts(["a", "b"], [{}])


def test_from_texts_without_a_path_keeps_nothing() -> None:
    store = PlaitVectorStore.from_texts(["foo", "bar"], DeterministicFakeEmbedding(size=8))
    folder = store.index.path
    assert len(store.similarity_search("foo", k=2)) == 2
    assert folder.exists()
    del store
    assert not folder.exists()


def test_from_documents_at_a_path_is_opened_again(tmp_path: Path) -> None:
    embedding = DeterministicFakeEmbedding(size=8)
    made = PlaitVectorStore.from_documents([Document(id="a", page_content="foo")], embedding, path=tmp_path / "index")
    made.index.close()
    again = PlaitVectorStore(tmp_path / "index", embedding=embedding)
    assert ids(again.similarity_search("foo")) == ["a"]
    assert again.embeddings is embedding
    again.index.close()
    with pytest.raises(EncoderMismatchError):
        PlaitVectorStore(tmp_path / "index", encoder=WordEncoder()).similarity_search("foo")


def test_a_title_field_is_encoded_with_the_text(tmp_path: Path) -> None:
    store = PlaitVectorStore(tmp_path / "index", create=True, encoder=WordEncoder(), title_field="title")
    store.add_texts(["It pumps blood.", "It breathes."], [{"title": "heart"}, {"title": "lung"}], ids=["1", "2"])
    assert ids(store.similarity_search("heart", k=1, mode="bm25")) == ["1"]
    assert store.get_by_ids(["1"])[0].metadata == {"title": "heart"}
    store.index.close()


def test_a_retriever_gives_passages_with_score_and_title(tmp_path: Path) -> None:
    with make_index(tmp_path, long=True) as index:
        retriever = PlaitRetriever(index=index, k=1)
        (passage,) = retriever.invoke("needle")
        (document,) = PlaitRetriever(index=index, k=1, content="document").invoke("needle")
    assert "needle" in passage.page_content
    assert len(passage.page_content) < len(document.page_content)
    assert passage.metadata["title"] == "Haystack"
    assert 0 < passage.metadata["score"] <= 1


def test_a_retriever_opens_a_path_and_takes_a_filter_for_a_call(tmp_path: Path) -> None:
    make_index(tmp_path).close()
    retriever = PlaitRetriever(index=plait.open(tmp_path / "index", encoder=WordEncoder()), filter={"lang": "en"})
    assert "webstuhl" not in ids(retriever.invoke("loom", k=9))
    assert ids(retriever.invoke("loom", k=9, filter={"lang": "de"})) == ["webstuhl"]


@pytest.mark.parametrize("wrong", [{"k": 0}, {"mode": 3}, {"content": "all"}, {"search": {"depth": 3}}, {"index": 7}])
def test_a_retriever_refuses_what_cannot_work(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with make_index(tmp_path) as index, pytest.raises((ConfigError, ValueError)):
        PlaitRetriever(**{"index": index, **wrong})


def test_a_reranker_reorders_and_keeps_the_best() -> None:
    documents = [Document(page_content=text) for text in ("a cat", "a loom crosses warp", "a loom")]
    best = PlaitReranker(model=OverlapScorer(), top_n=2).compress_documents(documents, "loom warp")
    assert [document.page_content for document in best] == ["a loom crosses warp", "a loom"]
    assert best[0].metadata["relevance_score"] == 2.0
    assert documents[1].metadata == {}


async def test_calls_of_plait_alone_run_in_asyncio(store: PlaitVectorStore) -> None:
    """Those that the suites do not make."""
    best = await PlaitReranker(model=OverlapScorer()).acompress_documents(
        [Document(page_content=text) for text in ("a cat", "a loom")], "loom warp"
    )
    assert best[0].page_content == "a loom"
    assert ids(await store.amax_marginal_relevance_search("loom crosses warp", k=1)) == ["loom"]
    assert ids(await store.asimilarity_search("loom", k=9, filter={"lang": "de"})) == ["webstuhl"]
    await store.adelete(filter={"lang": "de"})
    assert "webstuhl" not in store.index


def test_a_chain_answers_from_passages(tmp_path: Path) -> None:
    """Retrieval-augmented generation, with a language model that is fake."""
    seen: list[str] = []

    def remember(prompt: Any) -> Any:
        seen.append(prompt.to_string())
        return prompt

    with make_index(tmp_path) as index:
        retriever = PlaitRetriever(index=index, k=2)
        prompt = ChatPromptTemplate.from_template("Context:\n{context}\n\nQuestion: {question}")
        chain = (
            {"context": retriever | join_texts, "question": RunnablePassthrough()}
            | prompt
            | remember
            | FakeListChatModel(responses=["It crosses warp and weft."])
            | StrOutputParser()
        )
        assert chain.invoke("what does a loom do") == "It crosses warp and weft."
    assert "A loom crosses warp and weft." in seen[0]


def join_texts(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)
