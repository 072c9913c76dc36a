"""Threads that share one index: some search, some write, one refreshes. In one process or in several.

    python -m faults.threads --threads 8 --seconds 60 --commits 500
    python -m faults.threads --processes 2 --threads 4 --seconds 60 --commits 500

Each writer owns some ids, and an answer has the digest of each writer's documents. Afterwards the checker demands that
- each answer is one state of each writer, all of it and nothing else, and not older than the reader had to know: writes
  through the same index that had returned, writes of other processes before the last refresh;
- the states of all answers form one order, as the commits of an index do, and no later answer goes back in it.
Prints one line; ends with 1 if there was an error or a wrong answer. `--variant` breaks the index or the answers on
purpose, to show that the checker notices.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import plait
from faults import workload
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.storage.check import check
from plait.storage.shared_snapshot import SharedSnapshot

SPEC = EmbeddingSpec(dense=8, multi=8)
N_WRITERS = 2  # in each process
N_IDS = 20  # of each writer
ALL, FEW = 1000, 5  # k of searches that must return everything, and of those that need not
VARIANTS = ("sound", "closes", "mixes")
Documents = dict[str, int]  # of each id: the number that its text and vectors come from


def vector(number: int) -> NDArray[np.float32]:
    """Whole numbers, so that every sum of products is exact."""
    return np.random.default_rng(number).integers(-9, 10, 8).astype(np.float32)


def digest(documents: Iterable[tuple[str, int]]) -> str:
    return hashlib.blake2b(repr(sorted(documents)).encode(), digest_size=8).hexdigest()


@dataclass
class Answer:
    """What one search returned: of each writer the digest of its documents, or the documents if not all were asked
    for."""

    begin: float
    end: float
    what: str
    digests: dict[str, str] = field(default_factory=dict)
    few: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class Log:
    """What the threads of one process did. Times are of the clock that all processes share."""

    process: int
    answers: list[Answer] = field(default_factory=list)
    refreshes: list[tuple[float, float]] = field(default_factory=list)
    writes: dict[str, list[tuple[float, float, Documents]]] = field(
        default_factory=dict
    )  # by writer: begin, end, state
    n_commits: int = 0
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)


# -- the work


def search(index: plait.Index, rng: random.Random) -> tuple[str, list[list[plait.Hit]], bool]:
    """One search of a random kind: its name, its hits, and whether they must be all documents."""
    kind = rng.choice(["bm25", "filter", "many", "dense", "hybrid", "multi"])
    query = rng.randrange(1 << 20)
    embeddings = Embeddings(vector(query)[None], multi=MultiVectors.from_items([vector(query)[None]], dim=8))
    if kind == "multi":
        return kind, index.search_embeddings(embeddings, FEW, mode="multi"), False
    if kind == "dense":
        hits = index.search_embeddings(embeddings, ALL, mode="dense")
        assert all(hit.score == vector(query) @ vector(hit.metadata["number"]) for hit in hits[0])
        return kind, hits, True
    if kind == "hybrid":
        return kind, index.search_embeddings(embeddings, ALL, texts=["wool"]), True
    if kind == "many":
        return kind, index.search_many(["wool", "wool"], ALL, mode="bm25"), True
    filter = f"number >= {-rng.randrange(9)}" if kind == "filter" else None
    return kind, [index.search("wool", ALL, mode="bm25", filter=filter)], True


def ask(index: plait.Index, rng: random.Random, variant: str) -> list[Answer]:
    begin = time.monotonic()
    kind, results, is_complete = search(index, rng)
    if variant == "mixes" and is_complete:  # half of the documents of each writer are those of a later state
        time.sleep(0.05)
        later = index.search("wool", ALL, mode="bm25")
        results = [[hit for half in (0, 1) for hit in (results[0], later)[half] if int(hit.id[-1]) % 2 == half]]
    end = time.monotonic()
    answers = []
    for hits in results:
        answer = Answer(begin, end, kind)
        documents = [(hit.id, hit.metadata["number"]) for hit in hits]
        assert [hit.text for hit in hits] == [f"wool {number}" for _, number in documents]
        if is_complete:
            by_writer: dict[str, list[tuple[str, int]]] = {}
            for id, number in documents:
                by_writer.setdefault(id.partition("-")[0], []).append((id, number))
            answer.digests = {writer: digest(part) for writer, part in by_writer.items()}
        else:
            answer.few = documents
        answers.append(answer)
    return answers


def add(index: plait.Index, numbers: Documents) -> None:
    rows = [np.array([vector(number + more) for more in range(4)]) for number in numbers.values()]
    embeddings = Embeddings(np.array([row[0] for row in rows]), multi=MultiVectors.from_items(rows, dim=8))
    documents = [{"id": id, "text": f"wool {number}", "number": number} for id, number in numbers.items()]
    index.add_embeddings(documents, embeddings)


def write(index: plait.Index, writer: str, n_commits: int, end: float, rng: random.Random, log: Log) -> None:
    """Commits evenly, in three quarters of the time, or in more if that is too fast. A step is one commit; merges and
    compactions change no answer."""
    states = log.writes[writer]
    start, documents = time.monotonic(), dict(states[-1][2])
    for step in range(n_commits):
        pause = start + 0.75 * (end - start) * step / n_commits - time.monotonic()
        time.sleep(max(pause, 0))
        ids = [f"{writer}-{rng.randrange(N_IDS)}" for _ in range(rng.randint(1, 6))]
        begin = time.monotonic()
        kind = rng.choices(["add", "delete", "compact"], [6, 3, 1])[0]
        if kind == "compact":
            index.compact()
        else:
            if kind == "add":
                changed = {id: 1_000_000 * int(writer[1:]) + 10 * step + offset for offset, id in enumerate(ids)}
                documents = {**documents, **changed}
                add(index, changed)
            else:
                documents = {id: number for id, number in documents.items() if id not in ids}
                index.delete(ids)
            states.append((begin, time.monotonic(), documents))
        log.n_commits += 1


def work(path: Path, process: int, args: argparse.Namespace) -> Log:
    """All threads of one process."""
    start, log = time.monotonic(), Log(process)
    end = start + args.seconds
    writers = [f"w{process * N_WRITERS + number}" for number in range(N_WRITERS)]
    is_over = threading.Event()

    def until_over(once: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            while not is_over.is_set():
                try:
                    once()
                except Exception as error:
                    log.errors.append(f"{type(error).__name__}: {error}")
                    if not isinstance(error, plait.PlaitError):
                        traceback.print_exc()

        return run

    def searching(number: int) -> Callable[[], None]:
        rng = random.Random(f"{args.seed} {process} {number}")

        def search_once() -> None:
            log.answers.extend(ask(index, rng, args.variant))
            time.sleep(rng.uniform(0, 0.01))  # else Python's lock leaves the writers little time

        return until_over(search_once)

    def refresh() -> None:
        begin = time.monotonic()
        index.refresh()
        log.refreshes.append((begin, time.monotonic()))
        time.sleep(0.02)

    def writing(writer: str) -> Callable[[], None]:
        rng = random.Random(f"{args.seed} {writer}")
        n_commits = args.commits // (args.processes * N_WRITERS)

        def run() -> None:
            try:
                write(index, writer, n_commits, end, rng, log)
            except Exception as error:
                log.errors.append(f"{type(error).__name__}: {error}")
                traceback.print_exc()

        return run

    with plait.open(path, n_threads=1, write_timeout=60) as index:
        for writer in writers:
            log.writes[writer] = [(0.0, 0.0, {})]
        readers = [*map(searching, range(args.threads)), until_over(refresh)]
        threads = [threading.Thread(target=target) for target in [*map(writing, writers), *readers]]
        for thread in threads:
            thread.start()
        time.sleep(max(end - time.monotonic(), 0))
        for thread in threads[:N_WRITERS]:
            thread.join()
        is_over.set()
        for thread in threads[N_WRITERS:]:
            thread.join()
        log.seconds = time.monotonic() - start
    return log


# -- the checker


class Checker:
    """Says of each answer whether it is one of a committed state."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs = logs
        self._writes = {writer: writes for log in logs for writer, writes in log.writes.items()}
        self._begins = {writer: [begin for begin, _, _ in writes] for writer, writes in self._writes.items()}
        self._ends = {writer: [end for _, end, _ in writes] for writer, writes in self._writes.items()}
        self._versions: dict[str, dict[str, list[int]]] = {writer: {} for writer in self._writes}
        for writer, writes in self._writes.items():
            for version, (_, _, documents) in enumerate(writes):
                self._versions[writer].setdefault(digest(documents.items()), []).append(version)

    def wrong_answers(self) -> list[str]:
        problems, states = [], []
        for log in self._logs:
            newest: list[tuple[float, tuple[int, ...]]] = []  # (end, the newest state of all answers up to it)
            for answer in sorted(log.answers, key=lambda one: one.end):
                state = self._state(log, answer)
                if isinstance(state, str):
                    problems.append(state)
                elif state is not None:
                    states.append(state)
                    before = bisect_right(newest, answer.begin, key=lambda one: one[0]) - 1
                    if before >= 0 and not _is_up_to(newest[before][1], state):
                        problems.append(f"{answer.what} went back to {state} after {newest[before][1]}")
                    last = newest[-1][1] if newest else state
                    newest.append((answer.end, tuple(map(max, zip(last, state, strict=True)))))
        ordered = sorted(set(states), key=lambda state: (sum(state), state))
        for earlier, later in pairwise(ordered):
            if not _is_up_to(earlier, later):
                problems.append(f"{earlier} and {later} cannot both be states of the index")
        return problems

    def _state(self, log: Log, answer: Answer) -> tuple[int, ...] | str | None:
        """The version of each writer's documents; None if it is not certain; a message if there is none."""
        last_refresh = bisect_right(log.refreshes, answer.begin, key=lambda one: one[1]) - 1
        refreshed = log.refreshes[last_refresh][0] if last_refresh >= 0 else 0.0
        state = []
        for writer in self._writes:
            known = answer.begin if writer in log.writes else refreshed
            first = bisect_right(self._ends[writer], known) - 1
            last = bisect_left(self._begins[writer], answer.end) - 1
            versions = self._matching(writer, answer, first, last)
            if not versions:
                return f"{answer.what}: the documents of {writer} are none of its states {first} to {last}"
            state.append(versions)
        if answer.few or any(len(versions) > 1 for versions in state):
            return None
        return tuple(versions[0] for versions in state)

    def _matching(self, writer: str, answer: Answer, first: int, last: int) -> list[int]:
        if answer.what == "multi":
            few = {(id, number) for id, number in answer.few if id.startswith(f"{writer}-")}
            return [one for one in range(first, last + 1) if few <= self._writes[writer][one][2].items()]
        seen = answer.digests.get(writer, digest([]))
        return [one for one in self._versions[writer].get(seen, []) if first <= one <= last]


def _is_up_to(earlier: tuple[int, ...], later: tuple[int, ...]) -> bool:
    return all(one <= other for one, other in zip(earlier, later, strict=True))


# -- all of it


def break_the_index(variant: str) -> None:
    if variant == "closes":  # as before snapshots were counted: a refresh closes what others are reading

        def replace(self: SharedSnapshot) -> None:
            counted, self._current = self._current, None
            if counted is not None:
                counted.snapshot.close()

        setattr(SharedSnapshot, "replace", replace)  # noqa: B010 -- mypy forbids assigning to a method


def run(path: Path, args: argparse.Namespace) -> list[Log]:
    workload.merge_early()
    break_the_index(args.variant)
    plait.open(path, create=True, spec=SPEC, n_threads=1).close()
    if args.processes == 1:
        return [work(path, 0, args)]
    files = [path.parent / f"log{process}" for process in range(args.processes)]
    children = [_fork(path, process, args, file) for process, file in enumerate(files)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children), "a process failed; see above"
    return [_load(json.loads(file.read_text())) for file in files]


def _fork(path: Path, process: int, args: argparse.Namespace, file: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        log = work(path, process, args)
        file.write_text(json.dumps({**vars(log), "answers": [vars(answer) for answer in log.answers]}))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _load(log: dict[str, Any]) -> Log:
    answers = [Answer(**{**answer, "few": [(id, n) for id, n in answer["few"]]}) for answer in log["answers"]]
    refreshes = [(begin, end) for begin, end in log["refreshes"]]
    return Log(**{**log, "answers": answers, "refreshes": refreshes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=8, help="that search, in each process")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--commits", type=int, default=500, help="of all writers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variant", choices=VARIANTS, default="sound")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        logs = run(Path(folder, "index"), args)
        problems = check(Path(folder, "index")).problems
    wrong, errors = Checker(logs).wrong_answers(), [error for log in logs for error in log.errors]
    processes = "" if args.processes == 1 else f"{args.processes} processes of "
    judged = f"{len(wrong)} of no committed state" if wrong else "all of a committed state"
    n_commits, n_answers = sum(log.n_commits for log in logs), sum(len(log.answers) for log in logs)
    seconds = max(log.seconds for log in logs)
    print(
        f"{processes}{args.threads} threads, {seconds:.0f} s, {n_commits} commits: "
        f"{n_answers} answers, {len(errors)} errors, {judged}"
    )
    for message in [*map(str, problems), *sorted(set(errors))[:5], *wrong[:5]]:
        print(message, file=sys.stderr)
    sys.exit(bool(wrong or errors or problems))


if __name__ == "__main__":
    main()
