"""Which shard owns a document: each shard owns a range of the 64-bit hashes of ids. A shard is split by splitting its
range, and no other shard changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b

HASH = "blake2b-64"  # the name of the function in a manifest
N_HASHES = 1 << 64


def hash_id(id: str) -> int:
    """From 0 to below N_HASHES; the same on every machine."""
    return int.from_bytes(blake2b(id.encode(), digest_size=8).digest(), "big")


def even_starts(n_shards: int) -> list[int]:
    """The first hash of each of `n_shards` ranges of one size."""
    return [N_HASHES * number // n_shards for number in range(n_shards)]


def owner(starts: Sequence[int], id: str) -> int:
    """The number of the shard that owns an id; `starts` are the first hashes of the shards, ascending from 0."""
    return bisect_right(starts, hash_id(id)) - 1


def owned(starts: Sequence[int], ids: Sequence[str]) -> dict[int, list[str]]:
    """The ids by the shard that owns them, each list in the given order."""
    by_shard: dict[int, list[str]] = {}
    for id in ids:
        by_shard.setdefault(owner(starts, id), []).append(id)
    return by_shard
