"""Makes the small index of the present format that `test_formats.py` opens for ever; run it by its path.

Once for each new format number. An index that is committed is never made again: that it was written by the plait
of its time is its worth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plait.encode.protocol import StrandShape
from plait.index.catalogue import FORMAT
from plait.index.store import Store
from plait.records import Document, Span
from plait.strands import MultiVectors, Strands

DOCUMENTS = [
    Document("gone", "This one was deleted."),
    Document("wool", "Wool is spun into yarn. Then it is woven.", "Wool", {"year": 1764, "tags": ["animal", "warm"]}),
    Document("silk", "An old text, replaced below."),
    Document("茶/1", "京都の緑茶", "お茶", {"origin": None, "rating": 4.5}),
]
SPANS = [[Span(0, 21)], [Span(0, 23), Span(24, 41)], [Span(0, 28)], [Span(0, 5)]]
REPLACEMENT = Document("silk", "Silk comes from the cocoon of a moth.", "", {"year": -3000})


def strands(start: int, n_items: int) -> Strands:
    """Values that can be told by heart: dense row i is i + 0, 1/2, 1; its multi item has i % 2 + 1 rows of i, -i."""
    numbers = np.arange(start, start + n_items, dtype=np.float32)
    dense = numbers[:, None] + np.asarray([0, 0.5, 1], np.float32)
    items = [np.full((int(number) % 2 + 1, 2), [number, -number], np.float32) for number in numbers]
    return Strands(dense=dense, multi=MultiVectors.from_items(items))


def make(path: Path) -> None:
    """Two segments, a replaced document and a deleted one."""
    shape = StrandShape(dense=3, multi=2)
    store = Store.create(path, fingerprint="by hand", shape=shape, facts={"model": "none"})
    with store.writer() as writer:
        writer.write(DOCUMENTS, SPANS, strands(0, 5))
        writer.write([REPLACEMENT], [[Span(0, 37)]], strands(5, 1))
        writer.delete(["gone"])
        # The file is the same, and a fifth of the size in pages that a few documents cannot fill.
        writer._connection.execute("PRAGMA journal_mode = DELETE")
        writer._connection.execute("PRAGMA page_size = 1024")
        writer._connection.execute("VACUUM")
        writer._connection.execute("PRAGMA journal_mode = WAL")


if __name__ == "__main__":
    target = Path(__file__).parent / f"index-{FORMAT}"
    if target.exists():
        raise SystemExit(f"{target} is there already, and is kept as it was written")
    make(target)
    for leftover in target.glob("catalogue.sqlite-*"):
        leftover.unlink()
    total = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {total} bytes")
