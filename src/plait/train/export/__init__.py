"""A trained model as a model folder: the graph, written node by node, its card, and the checks between the two."""
