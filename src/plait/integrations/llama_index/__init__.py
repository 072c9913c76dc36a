"""LlamaIndex: a vector store, a retriever, and a cross-encoder as a node postprocessor.

from plait.integrations.llama_index import PlaitReranker, PlaitRetriever

retriever = PlaitRetriever("my-index", similarity_top_k=5, mode="hybrid")
engine = RetrieverQueryEngine.from_args(retriever, llm=llm, node_postprocessors=[PlaitReranker(top_n=2)])
"""

from plait.integrations.extras import missing_extra

try:
    from plait.integrations.llama_index.reranker import PlaitReranker
    from plait.integrations.llama_index.retriever import PlaitRetriever
    from plait.integrations.llama_index.store import PlaitVectorStore
except ModuleNotFoundError as error:
    raise missing_extra("llama-index", error) from error

__all__ = ["PlaitReranker", "PlaitRetriever", "PlaitVectorStore"]
