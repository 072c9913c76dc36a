"""Methods timed against each other: query by query in turn, several times, so that other work on the machine touches
all alike. Time is the processor's for this thread, the least of the rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from plait.search.multivector.item_filter import Chosen
from plait.search.multivector.method import Method
from plait.search.multivector.query import MultiVectorQuery
from plait_reproduce.arms.coded import Coded, coded_rows
from plait_reproduce.arms.multi import METHODS
from plait_reproduce.encoded import EncodedSet
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

ROUNDS = 3
N_QUERIES = 100


def methods_in_turn(workbench: Workbench, settings: Settings) -> Outcome:
    """Settings: set, and `methods`, name -> bits, method, k, options. Gives `name/seconds` for each query."""
    encoded = workbench.encoded(settings["set"])
    tasks = {}
    for name, own in settings["methods"].items():
        coded = coded_rows(workbench, encoded.document_rows, encoded.key, bits=own["bits"])
        method: Method = METHODS[own["method"]](**own.get("options", {}))
        tasks[name] = partial(_search, encoded, coded, Chosen(coded.items), method, own.get("k", 100))
    return Outcome(in_turn(tasks, encoded.query_ids[:N_QUERIES]))


def in_turn(
    tasks: Mapping[str, Callable[[int], object]], queries: list[str], *, n_rounds: int = ROUNDS
) -> dict[str, dict[str, float]]:
    """Every task with every query, given by number: `task/seconds` by query."""
    least = {name: np.full(len(queries), np.inf) for name in tasks}
    for task in tasks.values():  # what is made when first needed is nobody's time
        task(0)
    for _ in range(n_rounds):
        for number in range(len(queries)):
            for name, task in tasks.items():
                began = time.thread_time()
                task(number)
                least[name][number] = min(least[name][number], time.thread_time() - began)
    return {f"{name}/seconds": dict(zip(queries, own.tolist(), strict=True)) for name, own in least.items()}


def _search(encoded: EncodedSet, coded: Coded, chosen: Chosen, method: Method, k: int, number: int) -> object:
    return method.search(MultiVectorQuery(encoded.query_rows(number), coded.items), k, chosen)
