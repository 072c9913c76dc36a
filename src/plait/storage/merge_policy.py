"""Which segments to merge: the tiered policy of log-structured stores. Segments of about one size are a tier; once
enough neighbours are of a tier or below, they become one of the next, so that a row is rewritten as often as the index
has tiers, and the segments grow in number with the logarithm of what was written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from plait.storage.catalogue import SegmentRun
from plait.storage.files.residual import same_codec
from plait.storage.segment import Segment

FANOUT = 8
SMALLEST = 1 << 20  # bytes; all segments below are of one tier
LARGEST = 512 << 20  # bytes that one merge reads: what a write may have to wait for
MOST_DEAD = 0.5  # a segment with more deleted than not_deleted rows is rewritten: that costs less than deleting did
CODED_FROM = 1 << 16  # vectors; fewer stay float16, as exhaustive search of them is quick


def choose(segments: Sequence[Segment]) -> list[Segment]:
    """The segments to make one of, neighbours in the order of their documents; empty if it does not pay."""
    ordered = sorted(segments, key=lambda segment: int(segment.docs[0]))
    for tier in sorted({_tier(segment) for segment in ordered}):
        for run in _runs(ordered, tier):
            # Those of lower tiers go along, and count as one: few new ones must not rewrite large ones again and again.
            n_equal = sum(_tier(segment) == tier for segment in run)
            if n_equal + (n_equal < len(run)) >= FANOUT:
                return run
    wasted = [segment for segment in ordered if segment.n_rows - segment.n_live > MOST_DEAD * segment.n_rows]
    return [segment for segment in wasted if _living(segment) <= LARGEST][:1]


def codec_source(segments: Sequence[Segment]) -> Segment | None:
    """The segment whose codec new codes are made with: the largest compressed one."""
    coded = [segment for segment in segments if segment.coded is not None]
    return max(coded, key=lambda segment: segment.n_rows, default=None)


def run_of(segments: Sequence[Segment]) -> SegmentRun:
    numbers = tuple(segment.number for segment in segments)
    ends = [int(segment.docs[place]) for segment in segments for place in (0, -1)]
    return SegmentRun(numbers, min(ends), max(ends))


def _living(segment: Segment) -> float:
    """Bytes that a merge would write for it."""
    return sum(file.record.nbytes for file in segment.files.values()) * segment.n_live / max(segment.n_rows, 1)


def _tier(segment: Segment) -> int:
    return round(math.log(max(_living(segment) / SMALLEST, 1.0), FANOUT))


def _runs(ordered: Sequence[Segment], tier: int) -> list[list[Segment]]:
    """Neighbours of this tier or below, each run small enough to be merged at once and with one codec at most."""
    runs: list[list[Segment]] = [[]]
    nbytes = 0.0
    for segment in ordered:
        own = _living(segment)
        fits = _tier(segment) <= tier and own <= LARGEST
        if not fits or nbytes + own > LARGEST or not _same_codec(runs[-1], segment):
            runs.append([])
            nbytes = 0.0
        if fits:
            runs[-1].append(segment)
            nbytes += own
    return runs


def _same_codec(run: Sequence[Segment], segment: Segment) -> bool:
    first = next((other.coded for other in run if other.coded is not None), None)
    return first is None or segment.coded is None or same_codec(first, segment.coded)
