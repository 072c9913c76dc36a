"""Haystack: a document store, retrievers that need no embedder, and a ranker.

from plait.integrations.haystack import PlaitDocumentStore, PlaitRetriever

store = PlaitDocumentStore("my-index", create=True)
store.write_documents(documents)
pipeline.add_component("retriever", PlaitRetriever(store, top_k=5))
"""

from plait.integrations.extras import missing_extra

try:
    from plait.integrations.haystack.filters import haystack_filter
    from plait.integrations.haystack.ranker import PlaitRanker
    from plait.integrations.haystack.retrievers import PlaitHybridRetriever, PlaitRetriever
    from plait.integrations.haystack.store import PlaitDocumentStore
except ModuleNotFoundError as error:
    raise missing_extra("haystack", error) from error

__all__ = ["PlaitDocumentStore", "PlaitHybridRetriever", "PlaitRanker", "PlaitRetriever", "haystack_filter"]
