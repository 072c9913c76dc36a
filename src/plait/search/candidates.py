"""Documents that the caller names: ids to numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plait.errors import QueryError
from plait.search.retriever import Allowed
from plait.storage.store import Snapshot

SHOWN = 5


def numbers_of(snapshot: Snapshot, ids: Sequence[str], *, among: Allowed = None) -> NDArray[np.int64]:
    """The numbers of those documents that are allowed, ascending and each once; an id that is not in the index is a
    QueryError."""
    if isinstance(ids, str):
        raise QueryError("candidates must be a sequence of ids; put a single one in a list")
    found = snapshot.lookup(ids)
    missing = [id for id in dict.fromkeys(ids) if id not in found]
    if missing:
        raise QueryError(
            f"{len(missing)} of the candidates are not in the index: {', '.join(map(repr, missing[:SHOWN]))}"
            f"{' ...' if len(missing) > SHOWN else ''}; leave them out, or add them first"
        )
    numbers = np.unique(np.fromiter(found.values(), np.int64, len(found)))
    return numbers if among is None else np.intersect1d(numbers, among)
