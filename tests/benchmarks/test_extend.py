"""Generated passages: reproducible, of unit length, and none of them a copy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.embed import SHARD, shard
from benchmarks.engine.corpus import Corpus, read_queries
from benchmarks.engine.extend import EXTENSION, Extension


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, SHARD)
    values = rng.standard_normal((lengths.sum(), 16)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    np.save(shard(tmp_path, "values", 0), values.astype(np.float16))
    np.save(shard(tmp_path, "lengths", 0), lengths)
    np.save(tmp_path / "query-values.npy", values[:3])
    np.save(tmp_path / "query-lengths.npy", np.array([1, 2]))
    return tmp_path


def test_the_first_passages_are_the_real_ones(source: Path) -> None:
    values, lengths = Extension(source, SHARD).make(0)
    np.testing.assert_array_equal(values, np.load(shard(source, "values", 0)))
    np.testing.assert_array_equal(lengths, np.load(shard(source, "lengths", 0)))


def test_a_generated_shard_is_reproducible_and_differs_from_other_shards(source: Path) -> None:
    extension = Extension(source, SHARD)
    np.testing.assert_array_equal(extension.make(3)[0], extension.make(3)[0])
    assert extension.make(3)[0].tobytes() != extension.make(4)[0].tobytes()


def test_generated_vectors_have_unit_length_and_are_near_a_real_one(source: Path) -> None:
    values, lengths = Extension(source, SHARD).make(1)
    real = np.load(shard(source, "values", 0)).astype(np.float32)
    made = values[:50].astype(np.float32)
    assert len(values) == lengths.sum()
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=2e-3)
    nearest = (made @ real.T).max(axis=1)
    assert 0.9 < np.median(nearest) < 0.995


def test_a_folder_with_only_the_recipe_is_read_like_one_with_vectors(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / EXTENSION).write_text(json.dumps(Extension(source, SHARD).record()))
    corpus = Corpus(folder, 1500)
    assert [len(part) for part in corpus.shards()] == [1000, 500]
    assert len(corpus.whole()) == 1500
    assert len(read_queries(folder)) == 2


def test_passages_can_be_shortened(source: Path) -> None:
    whole, cut = Extension(source, SHARD), Extension(source, SHARD, longest=3)
    for number in (0, 1):
        _, lengths = whole.make(number)
        values, shorter = cut.make(number)
        assert shorter.max() == 3
        assert len(values) == shorter.sum()
    values, lengths = whole.make(0)
    starts = np.cumsum(lengths) - lengths
    assert np.array_equal(cut.make(0)[0][:1], values[starts[:1]])
