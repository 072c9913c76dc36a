"""Readers in other processes while a writer adds, deletes, merges and compacts.

    python -m faults.concurrency --seconds 60

Every answer names the commit that it was given from; afterwards it is compared with what a dictionary of that commit
would have given. Prints how many answers there were; ends with 1 if one was wrong or a reader failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
import traceback
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import plait
from faults import workload
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.storage.check import check

SPEC = EmbeddingSpec(dense=8, multi=8)
N_READERS, K = 4, 5
WORDS = ["wool", "linen", "silk", "jute", "hemp", "flax"]
State = dict[str, tuple[int, str]]  # of each id: the number that its vectors come from, and a word


def vector(number: int) -> NDArray[np.float32]:
    """Whole numbers, so that every sum of products is exact."""
    return np.random.default_rng(number).integers(-9, 10, 8).astype(np.float32)


def step(rng: random.Random, number: int, state: State) -> tuple[str, State]:
    """What the writer does next, and the state after it."""
    what = rng.choices(["write", "delete", "compact"], [6, 3, 1])[0]
    ids = [f"d{rng.randrange(80)}" for _ in range(rng.randint(1, 10))]
    if what == "write":
        return what, {id: (1000 * number + place, rng.choice(WORDS)) for place, id in enumerate(dict.fromkeys(ids))}
    return what, {id: state[id] for id in ids if id in state} if what == "delete" else {}


def write(path: Path, seed: int, seconds: float, journal: Path) -> None:
    """Writes for some time; notes the commit and the change of every step."""
    rng, state, number = random.Random(seed), State(), 0
    end = time.monotonic() + seconds
    with journal.open("w") as notes, plait.open(path, n_threads=1) as index:
        while time.monotonic() < end:
            what, change = step(rng, number, state)
            if what == "write":
                rows = [np.array([vector(own + more) for more in range(4)]) for own, _ in change.values()]
                embeddings = Embeddings(np.array([own[0] for own in rows]), multi=MultiVectors.from_items(rows, dim=8))
                index.add_embeddings([{"id": id, "text": word} for id, (_, word) in change.items()], embeddings)
                state = {**state, **change}
            elif what == "delete":
                index.delete(list(change))
                state = {id: own for id, own in state.items() if id not in change}
            else:
                index.compact()
            notes.write(json.dumps([index.snapshot.commit, what, change]) + "\n")
            number += 1


def read(path: Path, seed: int, seconds: float, answers: Path) -> None:
    """Asks for some time; notes every answer with its commit."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    with answers.open("w") as notes, plait.open(path, read_only=True, n_threads=1) as index:
        while time.monotonic() < end:
            if rng.random() < 0.5:
                index.refresh()
            query, word = rng.randrange(1 << 20), rng.choice(WORDS)
            embeddings = Embeddings(vector(query)[None], multi=MultiVectors.from_items([vector(query)[None]], dim=8))
            dense = [(hit.id, hit.score) for hit in index.search_embeddings(embeddings, K, mode="dense")[0]]
            multi = [hit.id for hit in index.search_embeddings(embeddings, K, mode="multi")[0]]
            words = [hit.id for hit in index.search(word, 100, mode="bm25")]
            notes.write(json.dumps([index.snapshot.commit, query, dense, multi, word, words]) + "\n")


def judge(journal: Path, answers: list[Path]) -> tuple[int, int]:
    """Compares all answers with the states that they were given from; how many answers, of how many states."""
    commits, states = [0], [State()]
    for line in journal.read_text().splitlines():
        commit, what, change = json.loads(line)
        kept = {id: own for id, own in states[-1].items() if id not in change}
        commits.append(commit)
        states.append({**kept, **change} if what == "write" else kept)
    n_answers, seen = 0, set()
    for line in [line for file in answers for line in file.read_text().splitlines()]:
        commit, *answer = json.loads(line)
        place = bisect_left(commits, commit)  # a step is one commit, and perhaps a merge, which changes no answer
        if place < len(states):  # the last step may have been cut short before its note
            _compare(states[place], *answer)
            n_answers += 1
            seen.add(commit)
    return n_answers, len(seen)


def _compare(state: State, query: int, dense: list[Any], multi: list[str], word: str, words: list[str]) -> None:
    scores = {id: float(vector(query) @ vector(own[0])) for id, own in state.items()}
    best = sorted(scores.values(), reverse=True)[:K]
    assert [score for _, score in dense] == best, f"dense gave {dense}, the best are {best}"
    assert all(scores[id] == score for id, score in dense)
    assert len(set(multi)) == len(multi) == min(K, len(state))
    assert set(multi) <= state.keys()
    assert set(words) == {id for id, own in state.items() if own[1] == word}


def run(folder: Path, seconds: float, seed: int) -> tuple[int, int]:
    path = folder / "index"
    workload.merge_early()
    plait.open(path, create=True, spec=SPEC, n_threads=1).close()
    answers = [folder / f"answers{number}" for number in range(N_READERS)]
    children = [_fork(read, path, seed + number, seconds, answers[number]) for number in range(N_READERS)]
    children.append(_fork(write, path, seed, seconds, folder / "journal"))
    statuses = [os.waitpid(child, 0)[1] for child in children]
    assert statuses == [0] * (N_READERS + 1), "a reader or the writer failed; see above"
    assert check(path).problems == []
    return judge(folder / "journal", answers)


def _fork(work: Any, *arguments: object) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=60)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        n_answers, n_states = run(Path(folder), given.seconds, given.seed)
    print(f"{n_answers} answers of {N_READERS} readers were right, from {n_states} states of the index")


if __name__ == "__main__":
    main()
