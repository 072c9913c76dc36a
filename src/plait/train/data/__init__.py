"""Training data: readers of the usual formats, one record, and a store on disk from which batches are drawn."""

from plait.train.data.example import Example, Passage

__all__ = ["Example", "Passage"]
