"""All three strands of a tower, scored exhaustively."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from plait.train.scores import dense_scores, maxsim_scores, sparse_scores
from plait_reproduce.states import States
from plait_reproduce.train.towers import Tower

AT_ONCE = 100  # texts


@torch.no_grad()
def strand_scores(tower: Tower, queries: States, documents: States) -> dict[str, NDArray[np.float32]]:
    """(queries, documents) scores of each strand."""
    asked = tower.encode(queries, range(len(queries)), is_query=True)
    found: dict[str, list[NDArray[np.float32]]] = {"dense": [], "sparse": [], "multi": []}
    for start in range(0, len(documents), AT_ONCE):
        part = tower.encode(documents, range(start, min(start + AT_ONCE, len(documents))), is_query=False)
        found["dense"].append(dense_scores(asked, part).numpy())
        found["sparse"].append(sparse_scores(asked, part).numpy())
        found["multi"].append(maxsim_scores(asked, part, reduce="mean").numpy())
    return {name: np.concatenate(own, axis=1) for name, own in found.items()}
