"""Export of a trained model to a model folder: an ONNX graph, written node by node, its card, and checks of both."""
