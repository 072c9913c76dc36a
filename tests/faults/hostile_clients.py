"""A real server under attack, and the clients that behave well beside the attackers.

    cd tests && python -m faults.hostile_clients --seconds 10

Starts `plait serve` with keys on a small index: a supervisor, a writer, two workers. Clients search and write all the
time, in turns alone and during an attack; the p99 of all times without attack is what others are compared with. One
line for each attack: what was sent, the answers, the p99 of the good searches as a ratio, good requests that failed or
had to be sent again because their process was killed, and processes that were replaced without being killed. At the end
every confirmed write must be there, the supervisor must be the first one, and memory must be bounded. Ends with 1 if a
line fails. Attackers, good clients and server share the processors: the ratio needs a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import plait
from faults.good_clients import WORDS, GoodClients, Request, good_clients, p99
from faults.hostile_requests import ATTACKS, Attack
from plait.serve.keys import make_key, new_key_file, write_keys
from serve.processes import Server, server, wait_until

N_DOCUMENTS = 50
SETTLE_SECONDS = 1.0  # after an attack, before the next
MAX_RATIO = 2.0
MEMORY_FACTOR, MEMORY_MEGABYTES = 1.5, 300  # how much a process may have grown at the end
# Shorter than the defaults, so that an attack of some seconds reaches them.
CONFIG = """
keys_file = {keys!r}
data_dir = {data!r}
[indexes.fabrics]
path = {index!r}
[processes]
workers = 2
[limits]
header_timeout = {timeout}
body_timeout = {timeout}
"""


@dataclass
class Line:
    """What one attack did."""

    name: str
    sent: str
    answers: Counter[str]
    n_good: int
    ratio: float
    failed: Counter[str]  # answers of good requests that failed
    n_cut: int  # good requests whose connection broke, and that were answered the second time
    n_restarts: int  # of processes that nobody killed
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{answer}: {count:,}" for answer, count in sorted(self.answers.items()))
        failed = ", ".join(f"{answer}: {count:,}" for answer, count in sorted(self.failed.items())) or "0"
        verdict = f"  FAILS: {'; '.join(self.problems)}" if self.problems else ""
        return (
            f"{self.name:<19} {self.ratio:5.2f} x p99, of {self.n_good:,} good requests {failed} failed and "
            f"{self.n_cut} were repeated, {self.n_restarts} restarts; {self.sent}: {counts}{verdict}"
        )


def make_index(path: Path, rng: random.Random) -> Path:
    documents = [
        {"id": f"d{number}", "text": " ".join(rng.choices(WORDS, k=12)), "year": 2000 + number % 20}
        for number in range(N_DOCUMENTS)
    ]
    with plait.open(path, create=True, n_threads=1) as index:
        index.add(documents)
    return path


@contextmanager
def hostile_target(folder: Path, seed: int, timeout: float) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server with keys, and the keys by name."""
    keys, file = {}, new_key_file()
    for name, scope in [("good", "read"), ("good-writer", "write"), ("reader", "read"), ("writer", "write")]:
        keys[name], entry = make_key(name, [scope])
        file = file.with_key(entry)
    keys["admin"], entry = make_key("admin", ["admin"])
    write_keys(folder / "keys.json", file.with_key(entry))
    index = make_index(folder / "fabrics", random.Random(seed))
    config = folder / "plait.toml"
    paths = {"keys": str(folder / "keys.json"), "data": str(folder / "data"), "index": str(index)}
    config.write_text(CONFIG.format(timeout=timeout, **paths), encoding="utf-8")
    with server("--config", str(config)) as running:
        wait_until(lambda: len(running.pids()) == 4, "the processes did not start")
        yield running, keys


class Siege:
    """Runs attacks on a server one after the other."""

    def __init__(
        self, running: Server, keys: dict[str, str], clients: GoodClients, *, seconds: float, seed: int
    ) -> None:
        self.server, self._keys, self.clients = running, keys, clients
        self._seconds, self._seed = seconds, seed
        self._supervisor = running.pids()["supervisor"]
        self._quiet: list[Request] = []  # requests without an attack
        self.acknowledged: list[str] = []
        self.memory: dict[str, int] = {}

    def begin(self) -> None:
        """Waits until models are loaded, and looks at the memory."""
        self.clients.wait_for(20)
        self._measure_quiet(self._seconds)
        self.memory = memory_of(self.server)

    @property
    def baseline(self) -> float:
        return p99(self._quiet)

    def _measure_quiet(self, seconds: float) -> None:
        began = time.monotonic()
        time.sleep(seconds)
        self._quiet += self.clients.between(began, time.monotonic())

    def attack(self, name: str, *, max_ratio: float) -> Line:
        attack, restarts = ATTACKS[name], _restarts(self.server)
        began = time.monotonic()
        n_kills, made = self._run(name, attack)
        time.sleep(SETTLE_SECONDS)
        requests = self.clients.between(began, time.monotonic())
        self.acknowledged += made["acknowledged"]
        self._measure_quiet(self._seconds / 2)
        line = Line(
            name,
            made["sent"],
            Counter(made["answers"]),
            n_good=len(requests),
            ratio=p99(requests) / self.baseline,
            failed=Counter(one.answer for one in requests if one.answer != "200"),
            n_cut=sum(one.was_cut for one in requests),
            n_restarts=_restarts(self.server) - restarts - n_kills,
        )
        line.problems = list(problems_of(line, attack, requests, max_ratio))
        return line

    def _run(self, name: str, attack: Attack) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "faults.hostile_requests", name, self.server.url]
        command += ["--seconds", str(self._seconds), "--seed", str(self._seed)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
        ) as process:
            n_kills = 0
            killing, stop = None, threading.Event()
            if attack.kills is not None:
                kills: list[int] = []
                killing = threading.Thread(target=self._kill_often, args=(attack.kills, stop, kills))
                killing.start()
            output, _ = process.communicate(json.dumps(self._keys) + "\n", timeout=self._seconds + 300)
            stop.set()
            if killing is not None:
                killing.join()
                n_kills = len(kills)
        assert process.returncode == 0, f"the attacker failed: {name}"
        made: dict[str, Any] = json.loads(output)
        return n_kills, made

    def _kill_often(self, name: str, stop: threading.Event, kills: list[int]) -> None:
        """Kills a process at random times, each time after it was replaced; later writes must be confirmed."""
        rng, end = random.Random(self._seed), time.monotonic() + self._seconds
        while not stop.wait(rng.uniform(0.5, 2.0)) and time.monotonic() < end:
            pid = self.server.pids().get(name)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                kills.append(pid)
                self.server.await_replaced(name, pid)

    def end(self) -> Iterator[str]:
        """What is wrong after all attacks; stops nothing."""
        if self.server.process.poll() is not None or self.server.pids()["supervisor"] != self._supervisor:
            yield "the supervisor ended"
            return
        for name, megabytes in memory_of(self.server).items():
            before = self.memory[name]
            if megabytes > MEMORY_FACTOR * before + MEMORY_MEGABYTES:
                yield f"{name} grew from {before} to {megabytes} MB"
        written = [one.id for one in self.clients.requests if one.kind == "write" and one.answer == "200"]
        self.acknowledged += written
        if missing := self._missing(self.acknowledged):
            yield f"{len(missing)} of {len(self.acknowledged)} confirmed documents are lost, such as {missing[0]}"
        if "Traceback" in self.server.log.read_text(encoding="utf-8", errors="replace"):
            yield "the log of the server has a traceback"

    def _missing(self, ids: Sequence[str]) -> list[str]:
        missing = []
        headers = {"authorization": f"Bearer {self._keys['admin']}"}
        for begin in range(0, len(ids), 500):
            part = list(ids[begin : begin + 500])
            body = {"ids": part}
            answer = httpx.post(
                f"{self.server.url}/v1/indexes/fabrics/documents/get", json=body, headers=headers, timeout=60
            )
            documents = answer.raise_for_status().json()["documents"]
            missing += [id for id, document in zip(part, documents, strict=True) if document is None]
        return missing


def problems_of(line: Line, attack: Attack, requests: Sequence[Request], max_ratio: float) -> Iterator[str]:
    """What is wrong with the outcome of an attack."""
    allowed = {"closed", *attack.answers.split(), *(f"{one}, then closed" for one in attack.answers.split())}
    if wrong := sorted(set(line.answers) - allowed):
        yield f"answers that should not be: {', '.join(wrong)}"
    if not line.answers:
        yield "nothing was sent"
    if line.failed:
        yield "good requests failed"
    if line.n_cut and attack.kills is None:
        yield "connections of good clients broke"
    if not any(one.kind == "search" for one in requests):
        yield "no good search was answered"
    if line.n_restarts:
        yield "a process ended"
    if not line.ratio <= max_ratio:
        yield f"p99 is more than {max_ratio:g} times that without attack"


def memory_of(running: Server) -> dict[str, int]:
    """Megabytes of each process that are in memory."""
    sizes = {}
    for name, pid in running.pids().items():
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                sizes[name] = int(line.split()[1]) // 1024
    return sizes


def _restarts(running: Server) -> int:
    (status,) = running.folder.glob("plait-serve-*/status.json")
    return sum(json.loads(status.read_text(encoding="utf-8"))["restarts"].values())


def run(names: Sequence[str], *, seconds: float, seed: int, max_ratio: float) -> Iterator[tuple[str, bool]]:
    """Attacks; gives each line, and whether it is good."""
    timeout = max(2.0, min(10.0, seconds / 3))  # a good client is never as slow as that
    with (
        tempfile.TemporaryDirectory(prefix="plait-hostile-") as folder,
        hostile_target(Path(folder), seed, timeout) as (running, keys),
        good_clients(running.url, "fabrics", keys["good"], keys["good-writer"]) as clients,
    ):
        siege = Siege(running, keys, clients, seconds=seconds, seed=seed)
        siege.begin()
        yield f"without attack      p99 {1000 * siege.baseline:.0f} ms; memory {_megabytes(siege.memory)}", True
        for name in names:
            line = siege.attack(name, max_ratio=max_ratio)
            yield str(line), not line.problems
        problems = list(siege.end())
        wrong = "; ".join(problems) or "none is lost, the supervisor is the first one"
        n_confirmed, memory = len(siege.acknowledged), _megabytes(memory_of(running))
        quiet = f"p99 alone {1000 * siege.baseline:.0f} ms"
        yield (
            f"at the end          {n_confirmed:,} confirmed documents: {wrong}; {quiet}; memory {memory}",
            not problems,
        )


def _megabytes(memory: dict[str, int]) -> str:
    return ", ".join(f"{name} {size} MB" for name, size in sorted(memory.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-ratio", type=float, default=MAX_RATIO, help="of the p99 to that without attack")
    parser.add_argument("--only", action="append", choices=ATTACKS, help="an attack; may be repeated")
    arguments = parser.parse_args()
    is_good = True
    for line, good in run(
        arguments.only or list(ATTACKS), seconds=arguments.seconds, seed=arguments.seed, max_ratio=arguments.max_ratio
    ):
        print(line, flush=True)
        is_good &= good
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
