"""Text to embeddings: the model folder, tokenizer, ONNX session, and chunking of long texts."""
