"""Where the true answers stand at each stage of a probed search: from that, the recall of every setting at once.

A search keeps the best of each stage, so an answer is found if its rank is below what every stage keeps. One pass for
each number of probed cells gives the ranks, and with them the recall for all values of n_candidates, n_code_scored and n_rescored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import CodedItems
from plait.search.multivector.query import MultiVectorQuery, ProbeConfig

PROBES = (1, 2, 4, 8, 16, 32, 64)
STEP = 2**0.5  # between neighbouring values of the other settings
MOST_GATHERED = 16_384
MOST_FLOODED = 4096
LOST = np.iinfo(np.int64).max  # the rank of what a stage never saw


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """The values of each setting that are compared. Without fine codes there is one value of n_rescored, and no matter."""

    probes: NDArray[np.int64]
    gathers: NDArray[np.int64]
    floods: NDArray[np.int64]
    fines: NDArray[np.int64]

    @classmethod
    def of(cls, items: CodedItems, n_first: int) -> Ladder:
        """For a search that asks for `n_first` passages: no stage keeps fewer."""
        most = max(min(MOST_GATHERED, len(items)), 4 * n_first)
        floods = _steps(n_first, max(min(MOST_FLOODED, most), n_first))
        return cls(
            np.asarray([n_probe for n_probe in PROBES if n_probe <= len(items.codec.codebook)], np.int64),
            _steps(4 * n_first, most),
            floods,
            floods if items.codes_8bit is not None else np.asarray([ProbeConfig().n_rescored], np.int64),
        )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.probes), len(self.gathers), len(self.floods), len(self.fines)


def _steps(least: int, most: int) -> NDArray[np.int64]:
    n_steps = int(np.ceil(np.log(most / least) / np.log(STEP))) + 1 if most > least else 1
    return np.unique(np.rint(np.geomspace(least, most, n_steps)).astype(np.int64))


def found_at(
    asked: MultiVectorQuery,
    items: CodedItems,
    truth: NDArray[np.int64],
    ladder: Ladder,
    allowed: NDArray[np.uint8] | None,
) -> NDArray[np.int64]:
    """How many of the true items are found, for every setting of the ladder: (probes, gathers, floods, fines)."""
    counts = np.zeros(ladder.shape, np.int64)
    scores = _Scores(asked, len(items), coarse=items.codes_8bit is not None)
    for place, n_probe in enumerate(ladder.probes):
        numbers, sums = asked.gather(int(n_probe), int(ladder.gathers[-1]), allowed)
        order = np.lexsort((numbers, -sums.astype(np.int64)))
        met = numbers[order].astype(np.int64)
        gather_ranks = _places(truth, met)
        if np.all(gather_ranks == LOST):
            continue
        flooded = scores.flooded(met)
        for step, n_candidates in enumerate(ladder.gathers):
            if step and ladder.gathers[step - 1] >= len(met):
                counts[place, step] = counts[place, step - 1]  # nothing more was met
                continue
            kept = met[:n_candidates]
            by_flood = kept[np.lexsort((kept, -flooded[:n_candidates]))]
            counts[place, step] = _found(truth, by_flood, ladder, scores)
    return counts


def _found(truth: NDArray[np.int64], by_flood: NDArray[np.int64], ladder: Ladder, scores: _Scores) -> NDArray[np.int64]:
    """(floods, fines) of what is found among items in the order of their centroid scores."""
    ranks = _places(truth, by_flood)
    survives = ranks[None, :] < ladder.floods[:, None]
    if not scores.coarse:
        return np.repeat(survives.sum(axis=1)[:, None], len(ladder.fines), axis=1)
    first = by_flood[: ladder.floods[-1]]
    own, others = scores.coarsely(truth), scores.coarsely(first)
    better = (others[:, None] > own[None, :]) | ((others[:, None] == own[None, :]) & (first[:, None] < truth[None, :]))
    ahead = np.cumsum(better, axis=0)[np.minimum(ladder.floods, len(first)) - 1]  # (floods, truth)
    found = survives[:, None, :] & (ahead[:, None, :] < ladder.fines[None, :, None])
    return np.asarray(found.sum(axis=2))


def _places(wanted: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each wanted number stands; LOST if it does not."""
    order = np.argsort(among)
    at = np.minimum(np.searchsorted(among, wanted, sorter=order), max(len(among) - 1, 0))
    if not len(among):
        return np.full(len(wanted), LOST)
    there = among[order[at]] == wanted
    return np.where(there, order[at], LOST)


class _Scores:
    """Scores of items for one query, each worked out once however many settings ask for it."""

    def __init__(self, asked: MultiVectorQuery, n_items: int, *, coarse: bool) -> None:
        self._asked, self.coarse = asked, coarse
        self._flooded = np.full(n_items, -1, np.int64)
        self._coarse = np.full(n_items if coarse else 0, np.nan, np.float32)

    def flooded(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        missing = items[self._flooded[items] < 0]
        if len(missing):
            self._flooded[missing] = self._asked.centroid_scores(missing)
        return self._flooded[items]

    def coarsely(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        missing = items[np.isnan(self._coarse[items])]
        if len(missing):
            self._coarse[missing] = self._asked.coarse_scores(missing)
        return self._coarse[items]
