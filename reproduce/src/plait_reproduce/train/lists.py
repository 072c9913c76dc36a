"""Lists of passages with a teacher's scores: what ColBERTv2 learns from. The teacher is the whole bundled encoder, both
its strands together; what it teaches sees the states of its lower half alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.scoring.maxsim import maxsim
from plait_reproduce.train.data import TRAIN, Questions
from plait_reproduce.train.towers import Tower
from plait_reproduce.workbench import Workbench

DEPTH = 50  # passages that are retrieved for a question


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Passages that a first model retrieves for each question, without the answer."""

    candidates: NDArray[np.int64]  # (queries, depth)
    teacher: NDArray[np.float32]  # (queries, documents)


def retrieved_lists(workbench: Workbench, own: Questions, first: Tower) -> Lists:
    queries, documents = first.rows(own.queries, is_query=True), first.rows(own.documents, is_query=False)
    candidates = []
    for number in range(len(own)):
        scores = maxsim(np.ascontiguousarray(queries[number], np.float32), documents)
        scores[own.positive[number]] = -np.inf
        candidates.append(np.argsort(-scores, kind="stable")[:DEPTH])
    return Lists(np.stack(candidates), teacher_scores(workbench))


def teacher_scores(workbench: Workbench) -> NDArray[np.float32]:
    """(queries, documents): the cosine of the dense strands plus the mean MaxSim of the multi strands."""
    encoded = workbench.encoded(TRAIN)
    assert encoded.queries.dense is not None
    assert encoded.documents.dense is not None
    assert encoded.queries.multi is not None
    n_rows = np.diff(encoded.queries.multi.offsets)[:, None]
    together = encoded.queries.dense @ encoded.documents.dense.T + workbench.maxsim(encoded) / n_rows
    return np.asarray(together, np.float32)
