"""When an index behind a compatible class is compressed: never for few vectors, and then each time it has doubled."""

from __future__ import annotations

from plait.index import Index
from plait.storage.merge_policy import MIN_COMPRESSED_VECTORS


def compress_if_large(index: Index, bits: int) -> None:
    """Compresses the multi vectors if the index has as many that are not compressed as it has others, and enough for
    codes to be faster. The time for it is then a share of the time for adding."""
    segments = index.snapshot.segments
    n_float = sum(len(segment.multi.values) for segment in segments if segment.multi is not None)
    n_coded = sum(int(segment.coded.offsets[-1]) for segment in segments if segment.coded is not None)
    if n_float >= max(MIN_COMPRESSED_VECTORS, n_coded):
        index.compact(bits=bits)
