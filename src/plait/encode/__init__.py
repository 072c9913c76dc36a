"""Text to strands: the model folder, the tokeniser, the ONNX session, and long texts in passages."""
