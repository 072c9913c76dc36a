"""`RAGPretrainedModel.as_langchain_retriever` and `as_langchain_document_compressor` inside LangChain."""

from __future__ import annotations

from pathlib import Path

from langchain_core.documents import Document

from plait.compat.ragatouille import RAGPretrainedModel

DOCUMENTS = ["A loom weaves cloth.", "Bread is baked in an oven.", "A kiln fires clay pots."]
QUERY = "how is cloth made"


def test_a_retriever_gives_passages_with_the_metadata_of_their_documents(tmp_path: Path) -> None:
    rag = RAGPretrainedModel.from_pretrained("plait-small", index_root=str(tmp_path))
    rag.index(DOCUMENTS, ["loom", "oven", "kiln"], [{"n": n} for n in range(3)], index_name="crafts")
    documents = rag.as_langchain_retriever(k=2).invoke(QUERY)
    assert len(documents) == 2
    assert (documents[0].page_content, documents[0].metadata) == (DOCUMENTS[0], {"n": 0})


def test_a_compressor_keeps_the_best_documents_and_their_scores() -> None:
    rag = RAGPretrainedModel.from_pretrained("plait-small")
    given = [Document(page_content=text) for text in reversed(DOCUMENTS)]
    best = list(rag.as_langchain_document_compressor(k=2).compress_documents(given, QUERY))
    assert best[0].page_content == DOCUMENTS[0]
    assert len(best) == 2
    assert best[0].metadata["relevance_score"] > best[1].metadata["relevance_score"]
