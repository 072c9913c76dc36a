"""ONNX graphs of models, written node by node from weights as arrays: backbones and heads. Without torch."""
