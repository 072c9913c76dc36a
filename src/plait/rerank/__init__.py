"""Cross-encoders, which read a query and a document together, and reranking with them."""
