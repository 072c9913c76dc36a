"""Batches: which examples go together, how they become texts, and how a batch larger than memory is trained on."""
