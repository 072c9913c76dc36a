"""Search with a cross-encoder that may score few documents (ANNCUR and its successors)."""
