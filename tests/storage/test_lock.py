"""The writer lock: a second writer gets an error that names the first; a dead process holds no lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plait.errors import LockedError
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
