"""Forks: a child uses its own connection and lock, never those of its parent."""

from __future__ import annotations

from pathlib import Path

import plait
from encoders import WordEncoder
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
