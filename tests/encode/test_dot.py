"""Models whose similarity is the inner product: vectors of any length are stored as they are, and searched right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from plait.codec.dense_ivf import DenseIvf, assign_cells, calibrate_probes, cells_for, train
from plait.embeddings import Embeddings
from plait.scoring.dense import ByteRows

DIM = 16


def vectors(n_rows: int, seed: int) -> NDArray[np.float32]:
    """Clusters of rows whose lengths differ by a factor of up to ten, as those of a model for inner products do."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((64, DIM))
    rows = centres[rng.integers(0, 64, n_rows)] + 0.4 * rng.standard_normal((n_rows, DIM))
    lengths = np.exp(rng.uniform(0, np.log(10), n_rows))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True) * lengths[:, None], np.float32)


def test_an_index_ranks_by_the_inner_product(tmp_path: Path) -> None:
    rows, queries = vectors(300, 0), vectors(20, 1)
    index = plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(dense=DIM))
    index.add_embeddings([plait.Document(str(n), "text") for n in range(len(rows))], Embeddings(dense=rows))
    for query in queries:
        hits = index.search_embeddings(Embeddings(dense=query[None]), k=10, mode="dense")[0]
        products = rows @ query
        assert [hit.id for hit in hits] == [str(n) for n in np.argsort(-products)[:10]]
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(products)[::-1][:10], rtol=1e-4)
    lengths = np.linalg.norm(rows, axis=1)
    assert lengths.max() / lengths.min() > 5


def test_the_inverted_file_finds_the_largest_inner_products() -> None:
    rows = vectors(20_000, 2)
    centroids = train(rows, cells_for(len(rows)))
    rounded = ByteRows.rounded(centroids)
    starts, owners = assign_cells(rows, centroids)
    ivf = DenseIvf(
        rounded, starts, owners, ByteRows.rounded(rows[owners]), calibrate_probes(rows, rounded, starts, owners)
    )
    found_share = []
    rng = np.random.default_rng(3)
    near_rows = rows[rng.integers(0, len(rows), 50)] + 0.3 * rng.standard_normal((50, DIM))
    for query in near_rows.astype(np.float32):
        best, _, _ = ivf.search(query, rows, 10, ivf.n_probe(10))
        found_share.append(len(set(best.tolist()) & set(np.argsort(-(rows @ query))[:10].tolist())) / 10)
    assert np.mean(found_share) > 0.97
