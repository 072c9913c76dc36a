"""Batches: which examples go together, how they become tensors, and how a batch larger than memory is trained on."""
