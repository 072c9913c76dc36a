"""Cross-encoders, which read a query and a document together, and nearest-neighbour search with them."""
