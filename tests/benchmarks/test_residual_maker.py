"""Index files that the benchmark writes for other engines; the parts that need none of these engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.engine.rivals.residual_maker import TILE, Codec, lloyd, n_centroids, nearest, pack  # noqa: E402


def random_rows(n: int, seed: int = 0) -> Any:
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", [1, TILE, TILE + 1])
def test_the_nearest_centroid_has_the_highest_product_and_bias(n: int) -> None:
    rows, centroids, bias = random_rows(n), random_rows(50, seed=1), torch.linspace(0, 3, 50)
    assert nearest(rows, centroids).tolist() == (rows @ centroids.T).argmax(dim=1).tolist()
    assert nearest(rows, centroids, bias).tolist() == (rows @ centroids.T + bias).argmax(dim=1).tolist()


@pytest.mark.parametrize("nbits", [1, 2, 4, 8])
def test_packed_bytes_hold_the_bits_of_each_bucket_lowest_first(nbits: int) -> None:
    rows, centroids = random_rows(TILE + 3).half(), random_rows(5, seed=1).half()
    codes = np.arange(len(rows)) % 5
    cutoffs = torch.linspace(-2, 2, 2**nbits - 1)
    codec = Codec(nbits, cutoffs, torch.zeros(2**nbits), torch.zeros(16), torch.zeros(1))
    buckets = np.searchsorted(cutoffs.numpy(), (rows - centroids[torch.from_numpy(codes)]).float().numpy())
    bits = (buckets[:, :, None] >> np.arange(nbits)) & 1
    plain = np.packbits(bits.reshape(len(rows), -1).astype(np.uint8), axis=1)
    np.testing.assert_array_equal(pack(rows.numpy(), codes, centroids, codec), plain)


def test_lloyd_finds_well_separated_groups() -> None:
    groups = 100 * torch.eye(16)[:3]
    points = groups.repeat(20, 1) + 0.1 * random_rows(60)
    means = lloyd(points, 12, torch.Generator().manual_seed(0))
    assert float((means[:, None] - groups).norm(dim=2).min(dim=1).values.max()) < 2


def test_the_number_of_centroids_is_that_of_both_builders() -> None:
    assert [n_centroids(n) for n in (133_645, 1_736_224, 5_700_000)] == [4096, 16_384, 32_768]
