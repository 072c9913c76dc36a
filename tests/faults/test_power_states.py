"""Power cuts during every writing command lose nothing. `python -m faults.power_states` tries two thousand for each."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from faults.power import Cut, Enter, Leave, Mark, Move, Operation, Replay, Start, Sync, Write


def power_states(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A process of its own, since it forks and changes what `os` and SQLite do."""
    command = [sys.executable, "-m", "faults.power_states", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=Path(__file__).parents[1]
    )


def test_a_power_cut_during_any_command_loses_nothing() -> None:
    done = power_states("--states", 10, "--seed", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 commands x 10 power states: 0 lost" in done.stdout


def test_a_disk_whose_syncs_do_nothing_is_found_out() -> None:
    done = power_states("--states", 12, "--lying", "--commands", "create", "add", "repair", "cur build")
    assert done.returncode == 1
    for line in done.stdout.splitlines()[:-1]:
        assert not line.endswith(" 0 lost"), line


def images(operations: list[Operation]) -> set[tuple[tuple[str, bytes | None], ...]]:
    """Every state that 400 samples show, of a disk with the file a that holds 'old'."""
    start = Start(1, {2: b"old", 3: b"", 4: b""}, {1: {"a": 2}, 5: {}})
    replay = Replay(start, operations)
    replay.advance(len(operations))
    return {tuple(replay.image(random.Random(seed)).items()) for seed in range(400)}


def test_what_was_not_synced_is_there_or_not_and_every_version_can_be_found() -> None:
    first, second = Write(2, 0, b"new"), Write(2, 3, b"er")
    versions = {(("a", content),) for content in (b"old", b"new", b"newer", b"old\0\0", b"new\0\0", b"older")}
    assert images([first, second]) == versions
    assert images([first, second, Sync(2)]) == {(("a", b"newer"),)}
    assert images([first, Sync(2), second]) == {(("a", b"new"),), (("a", b"new\0\0"),), (("a", b"newer"),)}
    assert images([Cut(2, 1)]) == {(("a", b"old"),), (("a", b"o"),)}


def test_names_need_a_sync_of_their_folder() -> None:
    made: list[Operation] = [Enter(1, "b", 3), Write(3, 0, b"x"), Sync(3)]
    assert images(made) == {(("a", b"old"),), (("a", b"old"), ("b", b"x"))}
    assert images([*made, Sync(1)]) == {(("a", b"old"), ("b", b"x"))}
    assert images([*made, Sync(1), Move(1, "b", "a")]) == {(("a", b"old"), ("b", b"x")), (("a", b"x"),)}
    assert images([Leave(1, "a"), Mark("returned")]) == {(("a", b"old"),), ()}
    below: list[Operation] = [Enter(1, "c", 5), Enter(5, "d", 4), Sync(4), Sync(5)]
    assert images(below) == {(("a", b"old"),), (("a", b"old"), ("c", None), ("c/d", b""))}
