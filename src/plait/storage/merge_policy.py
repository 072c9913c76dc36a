"""Which segments to merge: a tiered policy by bytes, as in log-structured stores.

Segments of about one size form a tier, and each tier is FANOUT times as large as the one below. Once FANOUT neighbours
are of a tier or below, they become one segment of the next tier, whatever their size. So batches of one size are
rewritten once per tier: rewrites and the number of segments grow with the logarithm of the bytes written.

Batches of many sizes can leave small segments between large ones, which no tier merges. MAX_SEGMENTS bounds their
number too: beyond it, the neighbours with the fewest bytes are merged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from plait.storage.catalogue import SegmentRun
from plait.storage.segment import Segment

FANOUT = 8
MAX_SEGMENTS = 32
MIN_TIER_BYTES = 1 << 20  # all smaller segments are of the lowest tier
MAX_DELETED_SHARE = 0.5  # a segment with more deleted rows is rewritten, which costs less than the deletes did
MIN_COMPRESSED_VECTORS = 1 << 16  # fewer stay float16, since exhaustive search over them is fast


def choose_segments(segments: Sequence[Segment], max_bytes: float = math.inf) -> list[Segment]:
    """The segments to merge into one, neighbours in the order of their documents; empty if no merge pays. A merge that
    would write more than `max_bytes` is not chosen."""
    ordered = sorted(segments, key=lambda segment: segment.span)
    runs = [*_tier_runs(ordered), *_crowded_runs(ordered), *_mostly_deleted(ordered)]
    return next((run for run in runs if _merged_bytes(run) <= max_bytes), [])


def _tier_runs(ordered: Sequence[Segment]) -> list[list[Segment]]:
    """Runs that fill a tier, smallest tier first."""
    runs = []
    for tier in sorted({_tier(segment) for segment in ordered}):
        for run in _runs(ordered, tier):
            # Segments of lower tiers join in, and count as one: a few small ones must not rewrite large ones again.
            n_equal = sum(_tier(segment) == tier for segment in run)
            if n_equal + (n_equal < len(run)) >= FANOUT:
                runs.append(run)
    return runs


def _crowded_runs(ordered: Sequence[Segment]) -> list[list[Segment]]:
    """Runs of FANOUT neighbours, fewest bytes first, if there are too many segments."""
    if len(ordered) <= MAX_SEGMENTS:
        return []
    runs = [run[i : i + FANOUT] for run in _runs(ordered, math.inf) for i in range(len(run) - FANOUT + 1)]
    return sorted(runs, key=_merged_bytes)


def _mostly_deleted(ordered: Sequence[Segment]) -> list[list[Segment]]:
    return [[s] for s in ordered if s.n_rows - s.n_live > MAX_DELETED_SHARE * s.n_rows]


def codec_source(segments: Sequence[Segment]) -> Segment | None:
    """The segment whose codec new codes are made with: the largest compressed one."""
    coded = [segment for segment in segments if segment.residual_file is not None]
    return max(coded, key=lambda segment: segment.n_rows, default=None)


def run_of(segments: Sequence[Segment]) -> SegmentRun:
    """Neighbouring segments as the catalogue names them."""
    numbers = tuple(segment.number for segment in segments)
    first, last = min(segment.span[0] for segment in segments), max(segment.span[1] for segment in segments) - 1
    return SegmentRun(numbers, first, last)


def _merged_bytes(run: Sequence[Segment]) -> float:
    """About the bytes that a merge would write."""
    return sum(_live_bytes(segment) for segment in run)


def _live_bytes(segment: Segment) -> float:
    return sum(file.record.nbytes for file in segment.files.values()) * segment.n_live / max(segment.n_rows, 1)


def _tier(segment: Segment) -> int:
    return round(math.log(max(_live_bytes(segment) / MIN_TIER_BYTES, 1.0), FANOUT))


def _runs(ordered: Sequence[Segment], tier: float) -> list[list[Segment]]:
    """Neighbours of this tier or below; each run has at most one codec."""
    runs: list[list[Segment]] = [[]]
    for segment in ordered:
        fits = _tier(segment) <= tier
        if not fits or not _has_same_codec(runs[-1], segment):
            runs.append([])
        if fits:
            runs[-1].append(segment)
    return runs


def _has_same_codec(run: Sequence[Segment], segment: Segment) -> bool:
    # The codecs are not verified: that would read large files. A merge verifies all that it copies.
    first = next((other.residual_file for other in run if other.residual_file is not None), None)
    return first is None or segment.residual_file is None or first.has_same_codec(segment.residual_file)
