"""The same calls for a library and for its shape in plait. The library's modules are given, so that one code runs both:
in `make_origin` with the library, in the tests with plait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CHECKPOINTS = Path(__file__).parents[1] / "convert" / "checkpoints"
N_DOCUMENTS = 30
WEIGHTS = [0.4, 0.2, 0.4]


def texts() -> tuple[list[str], list[str]]:
    """Queries and documents."""
    both = json.loads((CHECKPOINTS / "texts.json").read_text(encoding="utf-8"))
    return both["queries"][:4], both["documents"][:N_DOCUMENTS]


def pylate_calls(pylate: Any, checkpoint: str, folder: str, options: dict[str, Any]) -> dict[str, Any]:
    """Encoding with every option that plait takes, ranking, and retrieval from a Voyager index."""
    queries, documents = texts()
    model = pylate.models.ColBERT(checkpoint, device="cpu", **options)
    settings = {"query_length": 12, "document_length": 20, "do_query_expansion": False, "skiplist_words": ["."]}
    other = pylate.models.ColBERT(checkpoint, device="cpu", **settings, **options)
    attended = pylate.models.ColBERT(
        checkpoint, device="cpu", attend_to_expansion_tokens=True, query_prefix="[D] ", document_prefix="", **options
    )
    three = documents[:3]
    results = {
        "one query": model.encode(queries[0]),
        "queries": model.encode(queries[:2], batch_size=1, is_query=True, show_progress_bar=False),
        "documents": model.encode(three, batch_size=2, is_query=False),
        "nested": model.encode([three[:1], three[1:]], is_query=False),
        "prompt": model.encode(three[:1], is_query=False, prompt="passage: "),
        "padded": model.encode(three, is_query=False, padding=True),
        "other queries": other.encode(queries[:2], is_query=True),
        "other documents": other.encode(three, is_query=False),
        "attended": attended.encode(queries[:2], is_query=True),
        "without prefix": attended.encode(three, is_query=False),
        "settings": [other.query_length, other.document_length, other.do_query_expansion, model.query_prefix],
    }
    query_rows = model.encode(queries, is_query=True)
    rows = model.encode(documents, is_query=False)
    results["reranked"] = pylate.rank.rerank(
        documents_ids=[["a", "b", "c"], [1, 2, 3]],
        queries_embeddings=query_rows[:2],
        documents_embeddings=[rows[:3], rows[3:6]],
    )
    results["scored by xtr"] = xtr_scores(pylate.rank)
    index = pylate.indexes.Voyager(folder, "voyager", override=True, embedding_size=rows[0].shape[1])
    index.add_documents(documents_ids=[f"d{number}" for number in range(len(rows))], documents_embeddings=rows)
    retriever = pylate.retrieve.ColBERT(index=index)
    results["retrieved"] = retriever.retrieve(queries_embeddings=query_rows, k=5)
    results["retrieved for one"] = retriever.retrieve(queries_embeddings=query_rows[0], k=3)
    index.remove_documents([results["retrieved"][0][0]["id"]])
    results["after removal"] = retriever.retrieve(queries_embeddings=query_rows[:1], k=5)
    nearest = index(query_rows[:1], k=2)
    results["nearest vectors"] = {"distances": nearest["distances"][0][:3], "n": len(nearest["documents_ids"][0])}
    return results


def xtr_scores(rank: Any) -> list[Any]:
    """XTR of three query vectors, the last of which retrieved nothing."""
    ids = [["a", "b", "a", "c"], ["c", "d", "b", "d"], []]
    scores = [[0.9, 0.8, 0.7, 0.25], [0.85, 0.5, 0.4, -0.1], []]
    return [rank.score_xtr(ids, scores, k=k) for k in (2, 10)]


def pooled_documents(pylate: Any, checkpoint: str, options: dict[str, Any]) -> dict[str, Any]:
    """Documents with fewer vectors; their order is the library's own, so rows are sorted."""
    model = pylate.models.ColBERT(checkpoint, device="cpu", **options)
    _, documents = texts()
    pooled = {}
    for factor, protected in ((2, 1), (3, 0), (100, 2)):
        items = model.encode(documents[:4], is_query=False, pool_factor=factor, protected_tokens=protected)
        pooled[f"{factor}, {protected}"] = [
            item[sorted(range(len(item)), key=item.tolist().__getitem__)] for item in items
        ]
    return pooled


def flag_calls(flag: Any, checkpoints: dict[str, str], options: dict[str, Any]) -> dict[str, Any]:
    """Encoding and scoring with BGE-M3, with a dense model and with a reranker."""
    queries, documents = texts()
    m3 = flag.BGEM3FlagModel(checkpoints["bge-m3"], devices=["cpu"], query_instruction_for_retrieval="q: ", **options)
    every = {"return_dense": True, "return_sparse": True, "return_colbert_vecs": True}
    encoded = m3.encode(documents[:3], batch_size=2, max_length=24, **every)
    pairs = [(query, document) for query in queries[:2] for document in documents[:3]]
    weights = encoded["lexical_weights"]
    small = flag.BGEM3FlagModel(checkpoints["bge-m3"], devices=["cpu"], truncate_dim=8, passage_max_length=9, **options)
    dense = flag.FlagModel(checkpoints["dense"], devices="cpu", query_instruction_for_retrieval="query: ", **options)
    # With transformers 5 FlagEmbedding turns a pair into text and back, which changes the third document.
    short = [pair for pair in pairs if pair[1] != documents[2]]
    reranker = flag.FlagReranker(checkpoints["bge-reranker"], devices=["cpu"], max_length=1100)
    return {
        "encoded": encoded,
        "one text": m3.encode(documents[0], max_length=24, **every),
        "dense only": m3.encode(documents[:2], max_length=24),
        "queries": m3.encode_queries(queries[:2], return_sparse=True, max_length=24),
        "corpus": m3.encode_corpus(documents[:2], return_dense=False, return_colbert_vecs=True, max_length=24),
        "small": small.encode(documents[:2], return_colbert_vecs=True),
        "scores": m3.compute_score(pairs, max_query_length=20, max_passage_length=24),
        "weighted": m3.compute_score(pairs, weights_for_different_modes=WEIGHTS, max_passage_length=24),
        "one score": m3.compute_score(pairs[0], max_passage_length=24),
        "lexical": m3.compute_lexical_matching_score(weights, weights),
        "lexical of two": m3.compute_lexical_matching_score(weights[0], weights[1]),
        "colbert": m3.colbert_score(encoded["colbert_vecs"][0], encoded["colbert_vecs"][1]),
        "tokens": m3.convert_id_to_token(weights),
        "tokens of one": m3.convert_id_to_token(weights[:1]),
        "dense": dense.encode(documents[:2], max_length=24),
        "dense of one": dense.encode(documents[0], max_length=24),
        "dense queries": dense.encode_queries(queries[:2], max_length=24),
        "dense corpus": dense.encode_corpus(documents[:2], max_length=24),
        "pairs": reranker.compute_score(short),
        "normalized": reranker.compute_score(short, normalize=True, batch_size=2),
        "one pair": reranker.compute_score(short[0]),
    }


def short_texts() -> list[str]:
    """Documents that fit the smallest length of a checkpoint."""
    return [" ".join(text.split()[:7]) for text in texts()[1][:12]]


def ragatouille_calls(rag_model: Any, checkpoint: str) -> dict[str, Any]:
    """Documents in memory, whose scores are exact; the index of RAGatouille is compressed."""
    queries, _ = texts()
    documents = short_texts()
    rag = rag_model.from_pretrained(checkpoint)
    results = {
        "reranked": rag.rerank(queries[0], documents, k=3),
        "reranked for two": rag.rerank(queries[:2], documents, k=2, zero_index_ranks=True),
        "all": [rag.rerank(query, documents, k=len(documents)) for query in queries],
    }
    rag.encode(documents, document_metadatas=[{"number": at} for at in range(len(documents))], verbose=False)
    results["in memory"] = rag.search_encoded_docs(queries[0], k=3)
    return results
