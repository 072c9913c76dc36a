"""The link between two nodes is cut while they serve: no answer is silently partial, and all is whole when it is back.

Each node runs in a network namespace of its own, and a pair of virtual interfaces joins them. This needs Linux, root
and `ip` (Debian: iproute2).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.collections import config_for, make_documents, make_encoder
from plait.cluster.build import build_locally

TESTS = Path(__file__).parents[2]
N_SHARDS, N_TRIES = 2, 4
FIRST, SECOND = "10.231.7.1", "10.231.7.2"  # only in the namespaces
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",  # nothing outside of the namespaces reaches the nodes
}
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass
class Nodes:
    """Two namespaces, and the nodes of Ray in them."""

    names: tuple[str, str] = (f"plait-a{os.getpid()}", f"plait-b{os.getpid()}")
    ends: tuple[str, str] = (f"pa{os.getpid()}", f"pb{os.getpid()}")

    def create(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for name, end, address in zip(self.names, self.ends, (FIRST, SECOND), strict=True):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")

    def start(self, number: int) -> None:
        """A node of Ray, in the background. A busy machine may need more than one try: Ray waits 15 s for each part."""
        role = ["--head", "--port=6379", "--include-dashboard=false"] if number == 0 else [f"--address={FIRST}:6379"]
        memory = ["--num-cpus=2", "--object-store-memory=100000000", "--disable-usage-stats"]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--node-ip-address={(FIRST, SECOND)[number]}"]
        command = ["ip", "netns", "exec", self.names[number], *ray, *role, *memory]
        for _ in range(N_TRIES):
            done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
            if not done.returncode:
                return
            self.kill(number)
        raise RuntimeError(f"Ray did not start: {done.stderr[-1000:]}")

    def commands(self, number: int) -> dict[int, str]:
        """The processes of a node."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.names[number]], capture_output=True, text=True, check=False
        )
        commands = {}
        for pid in map(int, listed.stdout.split()):
            with contextlib.suppress(OSError):  # it has ended
                commands[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return commands

    def kill(self, number: int) -> None:
        for pid in self.commands(number):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_until_ended(self, number: int) -> None:
        """Waits until the node has ended by itself."""
        end = time.monotonic() + 180
        while any("raylet/raylet" in command for command in self.commands(number).values()):
            assert time.monotonic() < end
            time.sleep(0.5)
        self.kill(number)  # what it leaves

    def remove(self) -> None:
        for number, name in enumerate(self.names):
            self.kill(number)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    try:
        made.create()
        made.start(0)
        made.start(1)
        yield made
    finally:
        made.remove()


def test_a_cut_link_gives_no_answer_that_is_silently_partial(nodes: Nodes, tmp_path: Path) -> None:
    encoder = make_encoder()
    build_locally(make_documents(), encoder, tmp_path / "c", config_for(encoder, N_SHARDS))
    driver = [sys.executable, "-m", "cluster.on_ray.across_nodes", str(tmp_path / "c"), f"{FIRST}:6379"]
    running = subprocess.Popen(
        ["ip", "netns", "exec", nodes.names[0], *driver, nodes.names[1], nodes.ends[1]],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    too_long = threading.Timer(2000, running.kill)
    too_long.start()
    report: dict[str, Any] = {}
    assert running.stdout is not None
    for line in running.stdout:
        if line.strip() == "restart":  # Ray ends a node that it had given up; a service manager would start it again
            nodes.wait_until_ended(1)
            nodes.start(1)
        elif line.startswith("{"):
            report = json.loads(line)
    too_long.cancel()
    assert running.wait() == 0
    assert report
    print(f"\nRay gave the node up after {report['given_up_after']:.1f} s", end="; ")
    print(f"two replicas of every shard {report['replicas_after']:.1f} s after the link was back")
    for name, copies in (("one", "one copy"), ("two", "two copies")):
        cut = report[name]["cut"]
        print(
            f"{copies} of each shard: {cut['answers']} answers during the cut, {cut['partial']} partial, the last "
            f"{cut['disturbed_until']:.1f} s after it, slowest {cut['slowest']:.1f} s; {report[name]['back']}"
        )
        for phase in ("before", "cut", "back", "after"):
            assert report[name][phase]["wrong"] == 0, phase
        for phase in ("before", "after"):
            assert report[name][phase]["partial"] == 0, phase
            assert report[name][phase]["statuses"] == [200], phase
        assert set(cut["statuses"]) <= {200, 503}
    assert report["one"]["cut"]["partial"] > 0  # otherwise the cut cut nothing
