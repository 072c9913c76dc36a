"""The writer lock: a second writer gets an error that names the first; a dead process holds no lock."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plait.errors import ConfigError, LockedError
from plait.storage import lock as lock_module
from plait.storage.lock import WriterLock
from plait.storage.store import Store
from storage.samples import fabrics, run_python, write

HOLD = """
import sys, time
from pathlib import Path
from plait.storage.store import Store
writer = Store.open(Path(sys.argv[1])).writer()
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_writer_gets_an_error_that_names_the_first(store: Store) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(store.path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"process {holder.pid} on .* since 20"):
            store.writer()
        with store.snapshot() as snapshot:
            assert snapshot.n_documents == 4
        holder.kill()
        holder.wait()
    with store.writer() as writer:
        write(writer, fabrics()[:1])


def test_a_second_writer_in_one_process_is_refused_too(store: Store) -> None:
    with store.writer(), pytest.raises(LockedError, match=f"process {os.getpid()} .*this process"):
        store.writer()
    store.writer().close()


def test_a_lock_without_a_holder_name_still_holds(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path / "lock")
    (tmp_path / "lock").write_text("{")
    with pytest.raises(LockedError, match="another process"):
        WriterLock(tmp_path / "lock")
    lock.release()
    lock.release()
    WriterLock(tmp_path / "lock").release()


def test_a_lock_file_with_garbage_does_not_block(store: Store) -> None:
    (store.path / "lock").write_bytes(b"\xff" * 10_000)
    store.writer().close()
    assert (store.path / "lock").read_bytes() == b"\xff" * 10_000  # not plait's: neither read nor overwritten


def test_a_lock_with_a_second_name_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("")
    (store.path / "lock").unlink()
    (store.path / "lock").hardlink_to(other)
    with store.writer():
        assert other.read_text() == ""
        with pytest.raises(LockedError, match="another process"):
            store.writer()


def test_the_note_of_a_writer_that_was_killed_is_replaced(store: Store) -> None:
    note = '{"pid": 1, "host": "elsewhere", "since": "2020-01-01"}'
    for left in (note, "\0" * len(note)):
        (store.path / "lock").write_text(left)
        with store.writer():
            assert str(os.getpid()) in (store.path / "lock").read_text()


FORKS = """
import os, sys, time
from pathlib import Path
from plait.errors import StoreError
from plait.storage.store import Store
writer = Store.open(Path(sys.argv[1])).writer()
if os.fork() == 0:
    try:
        writer.delete(["wool"])
    except StoreError as error:
        os.write(1, f"{os.getpid()} {error}".encode())
    writer.close()
    os.close(1)
    os.close(2)
    time.sleep(60)
    os._exit(0)
os._exit(0)
"""


def test_a_forked_child_neither_writes_nor_keeps_the_lock(store: Store) -> None:
    child, _, error = run_python(FORKS, store.path).stdout.partition(" ")
    try:
        assert "belongs to process" in error
        store.writer().close()
    finally:
        os.kill(int(child), 9)


def test_a_lock_file_that_cannot_be_written_stops_no_writer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    for name in ("pwrite", "ftruncate"):
        monkeypatch.setattr(os, name, full)
    for id in ("wool", "silk"):
        with store.writer() as writer:
            assert writer.delete([id]) == 1


@contextmanager
def held_by_a_thread(path: Path) -> Iterator[threading.Event]:
    """Another thread holds the lock until the event is set, at the end of the block at the latest."""
    is_held, may_release = threading.Event(), threading.Event()

    def hold() -> None:
        lock = WriterLock(path)
        is_held.set()
        may_release.wait()
        lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(60)
    try:
        yield may_release
    finally:
        may_release.set()
        thread.join()


def wait_for_queue(length: int) -> None:
    while sum(map(len, lock_module._queues.values())) < length:
        time.sleep(0.001)


def test_a_writer_waits_for_another_thread(tmp_path: Path) -> None:
    with held_by_a_thread(tmp_path / "lock") as may_release:
        threading.Timer(0.2, may_release.set).start()
        WriterLock(tmp_path / "lock", timeout=60).release()
        assert may_release.is_set()


def test_a_writer_waits_for_another_process(store: Store) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(store.path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        waiting = Store.open(store.path, write_timeout=30)
        threading.Timer(0.2, holder.kill).start()
        with waiting.writer() as writer:
            assert writer.delete(["wool"]) == 1


def test_a_wait_ends_with_an_error_that_names_the_holder(tmp_path: Path) -> None:
    message = rf"process {os.getpid()} .*another thread.* after a wait of 0.05 seconds"
    with held_by_a_thread(tmp_path / "lock"), pytest.raises(LockedError, match=message):
        WriterLock(tmp_path / "lock", timeout=0.05)
    WriterLock(tmp_path / "lock").release()  # the one that gave up is not in the queue


def test_a_thread_does_not_wait_for_itself(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path / "lock")
    with pytest.raises(LockedError, match="this process and thread: close its open writer"):
        WriterLock(tmp_path / "lock", timeout=600)
    lock.release()


def test_threads_write_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    order: list[int] = []

    def write_in_turn(number: int) -> None:
        lock = WriterLock(tmp_path / "lock", timeout=60)
        order.append(number)
        lock.release()

    threads = [threading.Thread(target=write_in_turn, args=[number]) for number in range(8)]
    with held_by_a_thread(tmp_path / "lock"):
        for number, thread in enumerate(threads):
            thread.start()
            wait_for_queue(number + 2)  # the holder is the first of the queue
    for thread in threads:
        thread.join()
    assert order == list(range(8))


WRITES_ALL_THE_TIME = """
import sys, threading, time
from pathlib import Path
from plait.storage.lock import WriterLock
def work():
    while True:
        lock = WriterLock(Path(sys.argv[1]), timeout=30)
        with open(sys.argv[2], "ab") as turns:
            turns.write(b"x")
        time.sleep(0.001)
        lock.release()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
print("writing", flush=True)
time.sleep(60)
"""


def test_a_process_that_writes_all_the_time_lets_another_take_turns(tmp_path: Path) -> None:
    turns, n_foreign = tmp_path / "turns", []
    command = [sys.executable, "-c", WRITES_ALL_THE_TIME, str(tmp_path / "lock"), str(turns)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "writing\n"
        while not turns.exists():
            time.sleep(0.01)
        try:
            for _ in range(20):
                time.sleep(0.02)
                before = turns.stat().st_size
                lock = WriterLock(tmp_path / "lock", timeout=60)
                n_foreign.append(turns.stat().st_size - before)
                lock.release()
        finally:
            other.kill()
    assert sorted(n_foreign)[10] <= 3, n_foreign  # without an order among processes: about ten


INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from plait.storage.lock import WriterLock
path, way = Path(sys.argv[1]), sys.argv[2]
if way == "thread":
    is_held = threading.Event()
    threading.Thread(target=lambda: (WriterLock(path), is_held.set(), time.sleep(60)), daemon=True).start()
    is_held.wait()
threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
start = time.monotonic()
try:
    WriterLock(path, timeout=50)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - start < 20, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("way", ["thread", "process"])
def test_an_interrupt_ends_the_wait(tmp_path: Path, way: str) -> None:
    lock = WriterLock(tmp_path / "lock") if way == "process" else None
    assert run_python(INTERRUPTED, tmp_path / "lock", way).stdout == "interrupted True\n"
    if lock is not None:
        lock.release()


FORKS_WHILE_OTHERS_WAIT = """
import os, sys, threading, time
from pathlib import Path
from plait.storage import lock
from plait.storage.lock import WriterLock
path = Path(sys.argv[1])
first = WriterLock(path)
waiting = threading.Thread(target=lambda: WriterLock(path, timeout=30))
waiting.start()
while sum(map(len, lock._queues.values())) < 2:
    time.sleep(0.01)
if os.fork() == 0:
    open_files = [os.path.realpath(f"/proc/self/fd/{handle}") for handle in os.listdir("/proc/self/fd")]
    print("child", str(path) in open_files, flush=True)
    os._exit(0)
os.wait()
first.release()
waiting.join()
print("parent has it")
WriterLock(path)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_child_that_is_forked_during_a_wait_keeps_no_handle(tmp_path: Path) -> None:
    output = run_python(FORKS_WHILE_OTHERS_WAIT, (tmp_path / "lock").resolve())
    assert output.stdout.splitlines() == ["child False", "parent has it"]
    assert "LockedError" in output.stderr


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "30", None, True])
def test_a_write_timeout_is_a_number_of_seconds(store: Store, seconds: Any) -> None:
    with pytest.raises(ConfigError, match="write_timeout is"):
        Store.open(store.path, write_timeout=seconds)
