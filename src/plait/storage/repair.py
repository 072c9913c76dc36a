"""Repair: drops what cannot be read and keeps the rest, in one commit, and says what was lost.

A segment whose files are damaged or missing goes with its documents, unless they are files that only make searches
faster: then those go, and the next compaction makes them anew. A document whose row of the catalogue does not
agree with its segment, or with its own digest, goes alone. Of those, texts that are whole are kept in a file
(rescue.py). The index of words is made anew where it is not sound. A catalogue that SQLite itself cannot read is beyond
this: then a backup is needed.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.errors import CorruptIndexError, PlaitError, StoreError
from plait.storage import catalogue
from plait.storage.check import CheckReport, check, sound_segment
from plait.storage.connection import ReadTransaction
from plait.storage.deletes import not_deleted
from plait.storage.documents import digest_holds
from plait.storage.files.centroid_ids import NEAR
from plait.storage.files.dense_ivf import CELLS
from plait.storage.files.text_index import WORDS
from plait.storage.fsync import storage_errors
from plait.storage.rescue import write_documents
from plait.storage.segment import Segment, segment_folder
from plait.storage.snapshot import CATALOGUE
from plait.storage.store import Store
from plait.storage.tuned_params import read_tuned_params, write_tuned_params
from plait.storage.writer import Writer
from plait.text.fts_table import BATCH, read_analyser, rebuild_fts

DERIVED = (CELLS, NEAR, WORDS)  # files that hold nothing which other files do not


@dataclass(slots=True)
class RepairReport:
    """What a repair did."""

    path: Path
    lost: list[str] = field(default_factory=list)  # ids of documents that are gone, where their ids could be read
    segments: list[int] = field(default_factory=list)  # that were dropped whole
    slower: list[catalogue.SegmentRecord] = field(default_factory=list)  # that lost files which made searches faster
    found: list[str] = field(default_factory=list)  # problems, as `check` names them
    n_kept: int = 0
    whole: list[int] = field(default_factory=list)  # numbers of those whose texts are whole
    damaged_plan: bool = False  # what `tune` had saved could not be read, and was dropped


def repair(path: Path, *, rescue: Path | None = None) -> RepairReport:
    """Repairs the index at `path`; what texts are whole of the documents that go are written to the new file `rescue`.
    Raises where nothing can be mended: the catalogue itself is unreadable."""
    report = RepairReport(path, found=check(path).problems)
    with Store.open(path) as store:
        if not report.found:
            report.n_kept = _n_documents(path)
            return report
        with store.writer() as writer:
            _refuse_broken_catalogue(writer)
            sound = _sound_segments(store, report)
            gone = _homeless(writer, sound, report)
            if rescue is not None and report.whole:
                write_documents(writer.connection, report.whole, rescue)
            writer.repair(lambda: _mend(writer.connection, sound, gone, report))
            for record in report.slower:
                for name in DERIVED:
                    with suppress(OSError):  # no commit lists them now
                        (segment_folder(path, record.number) / name).unlink()
    left = check(path).problems
    if left:
        raise CorruptIndexError(
            f"{path} could not be repaired: {left[0]}; restore the index from a copy, or build it again"
        )
    return report


def _n_documents(path: Path) -> int:
    view = ReadTransaction(path / CATALOGUE)
    try:
        return view.count("n_documents")
    finally:
        view.close()


def _refuse_broken_catalogue(writer: Writer) -> None:
    with storage_errors(writer.path):
        found = [line for (line,) in writer.connection.execute("PRAGMA integrity_check(20)")]
    # The index of words is derived from the texts, and can be made anew; the rest cannot.
    serious = [line for line in found if line != "ok" and "words" not in line and "fts5" not in line.lower()]
    if serious:
        raise StoreError(
            f"{writer.path / CATALOGUE} is damaged ({serious[0]}), and cannot be repaired; restore the index from a "
            f"copy, or build it again"
        )


def _sound_segments(store: Store, report: RepairReport) -> dict[int, Segment]:
    """The segments whose files are as they were written; their deleted rows are found out anew."""
    view, sound = ReadTransaction(store.path / CATALOGUE), {}
    try:
        report.damaged_plan = bool(read_tuned_params(view).damage)
        numbers = [number for (number,) in view.rows("SELECT segment FROM segments ORDER BY segment")]
        for number in numbers:
            segment = None
            try:
                record = catalogue.read_segment(view, number)
                segment = sound_segment(CheckReport(store.path), store, view, record, None)
                less = replace(record, files={name: own for name, own in record.files.items() if name not in DERIVED})
                if segment is None and less.files != record.files:
                    segment = sound_segment(CheckReport(store.path), store, view, less, None)
                    report.slower += [less] if segment is not None else []
            except PlaitError:
                pass
            if segment is None:
                report.segments.append(number)
            else:
                sound[number] = segment
    finally:
        view.close()
    return sound


def _homeless(writer: Writer, sound: dict[int, Segment], report: RepairReport) -> list[int]:
    """The numbers of documents that are not what they say: without their rows, or with another content."""
    gone: list[int] = []
    last = -1
    columns = "doc, id, title, text, metadata, digest, segment, first_row, n_rows"
    among = not_deleted(catalogue.read_count(writer.connection, "format"))
    while True:
        with storage_errors(writer.path):
            rows = writer.connection.execute(
                f"SELECT {columns} FROM documents WHERE doc > ? AND {among} ORDER BY doc LIMIT ?", [last, BATCH]
            ).fetchall()
        if not rows:
            return gone
        last = rows[-1][0]
        for doc, id, title, text, metadata, digest, number, first_row, n_rows in rows:
            own = _own_rows(sound.get(number), doc, first_row, n_rows)
            whole = digest_holds(id, text, title, metadata, digest)
            if own is None or not whole or sound[number].ends[own].max() > len(text):
                gone.append(doc)
                report.whole += [doc] if whole else []


def _own_rows(segment: Segment | None, doc: int, first_row: object, n_rows: object) -> slice | None:
    """The rows of a document; None if they are not its own."""
    if segment is None or not isinstance(first_row, int) or not isinstance(n_rows, int):
        return None
    own = slice(first_row, first_row + n_rows)
    inside = 0 <= own.start < own.stop <= segment.n_rows
    return own if inside and bool(np.all(segment.docs[own] == doc)) else None


def _mend(connection: sqlite3.Connection, sound: dict[int, Segment], gone: list[int], report: RepairReport) -> int:
    """The steps of the one transaction."""
    if catalogue.read_count(connection, "format") >= catalogue.GRAVES_FORMAT:
        connection.execute("DELETE FROM documents WHERE doc IN (SELECT doc FROM graves)")
        connection.execute("DELETE FROM graves")
    for some in catalogue.chunks(gone):
        named = f"WHERE doc IN ({catalogue.marks(len(some))})"
        report.lost += [str(id) for (id,) in connection.execute(f"SELECT id FROM documents {named} ORDER BY doc", some)]
        connection.execute(f"DELETE FROM documents {named}", some)
    for number in report.segments:
        connection.execute("DELETE FROM segments WHERE segment = ?", [number])
    for record in report.slower:
        catalogue.keep_files(connection, record)
    connection.execute("DELETE FROM tombstones")
    for number, segment in sound.items():
        dead = np.flatnonzero(~_claimed(connection, segment))
        connection.executemany("INSERT INTO tombstones VALUES (?, ?)", ((number, int(row)) for row in dead))
    report.n_kept = connection.execute("SELECT COUNT(*) FROM documents").fetchone()[0]
    connection.execute("UPDATE meta SET value = ? WHERE key = 'n_documents'", [report.n_kept])
    highest = connection.execute("SELECT COALESCE(MAX(segment), 0) + 1 FROM segments").fetchone()[0]
    connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'next_segment'", [highest])
    if report.damaged_plan:
        write_tuned_params(connection, None)
    rebuild_fts(connection, read_analyser(connection.execute))  # it may hold words of what is gone
    return 0


def _claimed(connection: sqlite3.Connection, segment: Segment) -> NDArray[np.bool_]:
    """Which rows belong to a document."""
    claimed = np.zeros(segment.n_rows, bool)
    between = [int(segment.docs[0]), int(segment.docs[-1]), segment.number] if segment.n_rows else [0, -1, 0]
    sql = "SELECT first_row, n_rows FROM documents WHERE doc BETWEEN ? AND ? AND segment = ?"
    for first_row, n_rows in connection.execute(sql, between):
        claimed[first_row : first_row + n_rows] = True
    return claimed
