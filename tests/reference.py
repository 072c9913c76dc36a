"""The slow twins of the kernels: what correct means, in plain NumPy, written for reading."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.strands import MultiVectors, Rows


def maxsim(query: NDArray[np.float32], documents: MultiVectors) -> NDArray[np.float32]:
    """The sum over query rows of the best dot product with a row of the document; 0 for a document without rows."""
    scores = np.zeros(len(documents))
    for item in range(len(documents)):
        rows = documents[item].astype(np.float64)
        if len(rows):
            scores[item] = (query.astype(np.float64) @ rows.T).max(axis=1).sum()
    return scores.astype(np.float32)


def align(query: NDArray[np.float32], rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For each query row, the document row with the best dot product, and the product; -1 and 0 without rows."""
    if len(rows) == 0:
        return np.full(len(query), -1, np.int64), np.zeros(len(query), np.float32)
    products = query.astype(np.float64) @ rows.astype(np.float64).T
    return products.argmax(axis=1).astype(np.int64), products.max(axis=1).astype(np.float32)


def top_k(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Positions of the k largest, largest first; equal scores by position."""
    return np.lexsort((np.arange(len(scores)), -scores))[:k].astype(np.int64)


def crc32c(data: bytes, seed: int = 0) -> int:
    """Bit by bit, with the Castagnoli polynomial in reflected order."""
    crc = seed ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
