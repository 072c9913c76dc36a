"""Segments are memory-mapped, not loaded."""

from __future__ import annotations

from pathlib import Path

from plait.storage.info import info
from storage.grouped_tokens import SPEC, batch
from storage.samples import make_store


def test_files_that_were_not_read_are_not_in_memory(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index", spec=SPEC)
    with store.writer() as writer:
        writer.write(*batch(0, 4000))
    with store.snapshot() as snapshot:
        opened = info(store).resident_bytes
        assert opened is not None
        multi = snapshot.segments[0].multi
        assert multi is not None
        float(multi.values.sum())
        read = info(store).resident_bytes
        assert read is not None
        assert opened < read <= info(store).bytes
