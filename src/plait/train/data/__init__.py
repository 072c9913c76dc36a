"""Training data: readers of the usual formats, one internal record, and a pool on disk that batches are drawn from."""

from plait.train.data.example import Example, Passage

__all__ = ["Example", "Passage"]
