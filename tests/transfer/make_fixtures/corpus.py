"""The documents of every fixture: vectors of words, the same on every machine. Needs numpy alone.

Each script of this folder runs in an environment with the library that it names:

    PYTHONPATH=tests PYTHON tests/transfer/make_fixtures/faiss_index.py tests/transfer/fixtures
"""

from __future__ import annotations

import zlib

import numpy as np

N_DOCUMENTS = 120
DIM = 32
MODEL = "example/words-32"
NOUNS = [
    "loom",
    "thread",
    "wool",
    "silk",
    "cotton",
    "linen",
    "river",
    "stone",
    "bridge",
    "lamp",
    "clock",
    "garden",
    "paper",
    "engine",
    "winter",
    "market",
]
VERBS = ["spins", "cuts", "holds", "lifts", "turns", "paints", "sends", "finds", "keeps", "breaks"]


def documents() -> list[dict[str, object]]:
    """Documents with id, text and metadata."""
    rng = np.random.default_rng(7)
    made = []
    for number in range(N_DOCUMENTS):
        length = int(rng.integers(4, 13))
        words = [word for _ in range(length) for word in (str(rng.choice(NOUNS)), str(rng.choice(VERBS)))]
        made.append({"id": f"doc-{number}", "text": " ".join(words), "year": 1990 + number, "tag": words[0]})
    return made


def word_vector(word: str) -> np.ndarray:
    vector = np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIM)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def multi_vectors(text: str) -> np.ndarray:
    """A unit vector for each word: that of the word, a little of its neighbour, and noise that depends on the text."""
    rows = np.array([word_vector(word) for word in text.split()])
    noise = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(rows.shape) / np.sqrt(DIM)
    rows = rows + 0.3 * np.roll(rows, 1, axis=0) + 0.4 * noise
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def dense_vector(text: str) -> np.ndarray:
    vector = multi_vectors(text).sum(axis=0)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def sparse_vector(text: str) -> dict[int, float]:
    """Term ids below 1000 with the length of the word as weight."""
    return {zlib.crc32(word.encode()) % 1000: len(word) / 4 for word in sorted(set(text.split()))}


QUERIES = ["loom spins wool", "river bridge", "clock turns winter", "garden paper finds", "engine lamp breaks"]
