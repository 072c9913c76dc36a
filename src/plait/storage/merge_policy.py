"""Which segments to merge: a tiered policy, as in log-structured stores. Segments of about one size form a tier. Once
enough neighbours are of a tier or below, they become one segment of the next tier. So a row is rewritten once per tier,
and the number of segments grows with the logarithm of the rows written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from plait.storage.catalogue import SegmentRun
from plait.storage.files.residual import same_codec
from plait.storage.segment import Segment

FANOUT = 8
MIN_TIER_BYTES = 1 << 20  # all smaller segments are of the lowest tier
MAX_MERGE_BYTES = 512 << 20  # that one merge reads: a write may have to wait for it
MAX_DELETED_SHARE = 0.5  # a segment with more deleted rows is rewritten, which costs less than the deletes did
MIN_COMPRESSED_VECTORS = 1 << 16  # fewer stay float16, since exhaustive search over them is fast


def choose_segments(segments: Sequence[Segment]) -> list[Segment]:
    """The segments to merge into one, neighbours in the order of their documents; empty if no merge pays."""
    ordered = sorted(segments, key=lambda segment: int(segment.docs[0]))
    for tier in sorted({_tier(segment) for segment in ordered}):
        for run in _runs(ordered, tier):
            # Segments of lower tiers join in, and count as one: a few small ones must not rewrite large ones again.
            n_equal = sum(_tier(segment) == tier for segment in run)
            if n_equal + (n_equal < len(run)) >= FANOUT:
                return run
    mostly_deleted = [s for s in ordered if s.n_rows - s.n_live > MAX_DELETED_SHARE * s.n_rows]
    return [segment for segment in mostly_deleted if _live_bytes(segment) <= MAX_MERGE_BYTES][:1]


def codec_source(segments: Sequence[Segment]) -> Segment | None:
    """The segment whose codec new codes are made with: the largest compressed one."""
    coded = [segment for segment in segments if segment.coded is not None]
    return max(coded, key=lambda segment: segment.n_rows, default=None)


def run_of(segments: Sequence[Segment]) -> SegmentRun:
    """Neighbouring segments as the catalogue names them."""
    numbers = tuple(segment.number for segment in segments)
    bounds = [int(segment.docs[end]) for segment in segments for end in (0, -1)]
    return SegmentRun(numbers, min(bounds), max(bounds))


def _live_bytes(segment: Segment) -> float:
    """About the bytes that a merge would write for a segment."""
    return sum(file.record.nbytes for file in segment.files.values()) * segment.n_live / max(segment.n_rows, 1)


def _tier(segment: Segment) -> int:
    return round(math.log(max(_live_bytes(segment) / MIN_TIER_BYTES, 1.0), FANOUT))


def _runs(ordered: Sequence[Segment], tier: int) -> list[list[Segment]]:
    """Neighbours of this tier or below; each run fits into one merge and has at most one codec."""
    runs: list[list[Segment]] = [[]]
    nbytes = 0.0
    for segment in ordered:
        live_bytes = _live_bytes(segment)
        fits = _tier(segment) <= tier and live_bytes <= MAX_MERGE_BYTES
        if not fits or nbytes + live_bytes > MAX_MERGE_BYTES or not _has_same_codec(runs[-1], segment):
            runs.append([])
            nbytes = 0.0
        if fits:
            runs[-1].append(segment)
            nbytes += live_bytes
    return runs


def _has_same_codec(run: Sequence[Segment], segment: Segment) -> bool:
    first = next((other.coded for other in run if other.coded is not None), None)
    return first is None or segment.coded is None or same_codec(first, segment.coded)
