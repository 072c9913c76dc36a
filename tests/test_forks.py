"""Forks: a child uses its own connection and lock, never those of its parent."""

from __future__ import annotations

from pathlib import Path

import plait
from encoders import WordEncoder
from plait.storage.check import check
from storage.samples import run_python

FORKS = """
import os, sys
sys.path.insert(0, sys.argv[2])
import plait
from encoders import WordEncoder
index = plait.open(sys.argv[1], encoder=WordEncoder(), n_threads=1)
print("parent", len(index.search("wool", mode="bm25")), flush=True)
go, going = os.pipe()
done, doing = os.pipe()
child = os.fork()
if not child:
    print("child", len(index.search("wool", mode="bm25")), flush=True)
    os.write(doing, b"x")
    os.read(go, 1)
    index.refresh()
    print("child", len(index.search("wool", mode="bm25")), flush=True)
    print("child", index.delete(["a"]), len(index), flush=True)
    os._exit(0)
os.read(done, 1)
index.add([{"id": "b", "text": "wool too"}])
os.write(going, b"x")
os.waitpid(child, 0)
index.refresh()
print("parent", [hit.id for hit in index.search("wool", mode="bm25")])
"""


def test_a_forked_child_searches_refreshes_and_writes_by_itself(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "a", "text": "wool"}])
    output = run_python(FORKS, tmp_path / "index", Path(__file__).parent)
    expected = ["child 1", "child 1 1", "child 2", "parent 1", "parent ['b']"]
    assert sorted(output.stdout.splitlines()) == expected, output.stderr


READS_WHILE_THE_PARENT_WRITES = """
import os, sys
sys.path.insert(0, sys.argv[2])
import plait
from encoders import WordEncoder
index = plait.open(sys.argv[1], encoder=WordEncoder(), n_threads=1)
index.search("wool", mode="bm25")
go, going = os.pipe()
done, doing = os.pipe()
child = os.fork()
if not child:
    index.refresh()
    snapshot = index.snapshot
    os.write(doing, b"x")
    os.read(go, 1)
    texts = [document.text for document in snapshot.fetch(range(1, 201))]
    print("child", snapshot.n_documents, texts == [f"wool {number} " * 50 for number in range(200)], flush=True)
    os._exit(0)
os.read(done, 1)
index.refresh()
for number in range(10):
    index.add([{"id": str(number), "text": f"linen {number} " * 50} for number in range(200)])
    index.compact()
os.write(going, b"x")
os.waitpid(child, 0)
print("parent", len(index.search("linen", k=1000, mode="bm25")))
"""


def test_the_snapshot_of_a_forked_child_holds_a_lock_of_its_own(tmp_path: Path) -> None:
    """Without it, the parent overwrites the pages that the child reads."""
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": str(number), "text": f"wool {number} " * 50} for number in range(200)])
    output = run_python(READS_WHILE_THE_PARENT_WRITES, tmp_path / "index", Path(__file__).parent)
    assert sorted(output.stdout.splitlines()) == ["child 200 True", "parent 200"], output.stderr


FORKS_AMID_THREADS = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[2])
import plait
from encoders import WordEncoder
index = plait.open(sys.argv[1], encoder=WordEncoder(), n_threads=1)
is_over = threading.Event()
def repeat(work):
    while not is_over.is_set():
        work()
works = [
    lambda: index.search("wool"),
    index.refresh,
    lambda: index.add([{"id": "x", "text": f"wool {time.monotonic()}"}]),
]
threads = [threading.Thread(target=repeat, args=[work]) for work in works]
for thread in threads:
    thread.start()
outcomes = set()
for number in range(40):
    child = os.fork()
    if not child:
        try:
            index.refresh()
            index.search("wool")
            index.delete([f"d{number}"])
            os._exit(0)
        except plait.StoreError as error:
            os._exit(1 if "forked while" in str(error) else 2)
        finally:
            os._exit(3)
    outcomes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
is_over.set()
for thread in threads:
    thread.join()
print(outcomes <= {0, 1}, len(index.search("wool", k=1000, mode="bm25")) > 0)
"""


def test_a_child_that_is_forked_amid_threads_harms_nothing(tmp_path: Path) -> None:
    """SQLite in such a child would hang, or write without locks and lose commits of the parent."""
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": f"d{number}", "text": f"wool {number}"} for number in range(50)])
    output = run_python(FORKS_AMID_THREADS, tmp_path / "index", Path(__file__).parent)
    assert output.stdout == "True True\n", output.stderr
    assert "Error" not in output.stderr
    assert check(tmp_path / "index").problems == []


FORKS_WHILE_WRITING = """
import os, sys
sys.path.insert(0, sys.argv[2])
import plait
from encoders import WordEncoder
index = plait.open(sys.argv[1], encoder=WordEncoder(), n_threads=1)
def documents():
    yield {"id": "b", "text": "wool too"}
    child = os.fork()
    if not child:
        try:
            index.search("wool")
        except plait.StoreError as error:
            print("child", error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    yield {"id": "c", "text": "wool as well"}
index.add(documents(), commit_every=1)
print("parent", len(index))
"""


def test_a_child_of_a_writer_cannot_use_the_index(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "a", "text": "wool"}])
    child, parent = run_python(FORKS_WHILE_WRITING, tmp_path / "index", Path(__file__).parent).stdout.splitlines()
    assert "forked while its parent wrote the index" in child
    assert parent == "parent 3"
