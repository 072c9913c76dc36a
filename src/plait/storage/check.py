"""Reads a whole index and says what is wrong with it. Changes nothing; goes on after a problem, to list them all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.errors import CorruptIndexError, NewerFormatError, NotAnIndexError, PlaitError
from plait.storage.catalogue import GRAVES_FORMAT, SegmentRecord, pooling_in, read_meta, read_segments, read_tombstones
from plait.storage.check_documents import check_contents
from plait.storage.connection import ReadTransaction, connect
from plait.storage.deletes import not_deleted
from plait.storage.fsync import storage_errors
from plait.storage.fusion_weights import read_weights
from plait.storage.segment import Segment, file_names, open_file
from plait.storage.segment_file import SegmentFile
from plait.storage.snapshot import CATALOGUE
from plait.storage.store import Store
from plait.storage.tuned_params import read_tuned_params
from plait.storage.writer import leftovers

ATTEMPTS = 3


@dataclass(slots=True)
class CheckReport:
    """What a check found. Problems are damage; notes are what the next writer will tidy, or what was not checked."""

    path: Path
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_documents: int = 0
    n_rows: int = 0
    n_segments: int = 0
    n_bytes: int = 0  # of segment files that were read and compared with their checksums

    @property
    def ok(self) -> bool:
        return not self.problems


def check(path: Path) -> CheckReport:
    """Checks every file, row and document of the newest commit. Raises only where there is no index to check."""
    for _ in range(ATTEMPTS):
        report, commit = CheckReport(path), None
        with _noting(report):
            store = Store.open(path)
            view = ReadTransaction(path / CATALOGUE)
            try:
                commit = view.commit
                _check_index(report, store, view)
            finally:
                view.close()
        # A compaction may have removed the files of the commit that was being read; then the newer one is judged.
        if commit is None or not report.problems or _newest(path) == commit:
            break
    return report


def _newest(path: Path) -> int:
    view = ReadTransaction(path / CATALOGUE)
    try:
        return view.commit
    finally:
        view.close()


@contextmanager
def _noting(report: CheckReport) -> Iterator[None]:
    try:
        yield
    except (NotAnIndexError, NewerFormatError):
        raise
    except PlaitError as error:
        report.problems.append(str(error))
    except FileNotFoundError as error:
        report.problems.append(f"{error.filename} is missing, and the catalogue lists it")


def _check_index(report: CheckReport, store: Store, view: ReadTransaction) -> None:
    with _noting(report):
        found = [line for (line,) in view.rows("PRAGMA integrity_check(20)")]
        report.problems += [f"{CATALOGUE}: {line}" for line in found if line != "ok"]
    with _noting(report):
        _check_words(report, view)
    with _noting(report):
        records, dead = read_segments(view), read_tombstones(view)
        report.n_segments = len(records)
        strays = sorted(set(dead) - {record.number for record in records})
        if strays:
            report.problems.append(f"rows are deleted of segments that are not listed: {strays[:10]}")
        segments: dict[int, Segment] = {}
        for record in records:
            segment = sound_segment(report, store, view, record, dead.get(record.number))
            if segment is not None:
                segments[record.number] = segment
                report.n_rows += segment.n_live
        report.problems += check_contents(segments, view)
        for folder in leftovers(store.path, {record.number for record in records}):
            report.notes.append(f"{folder} belongs to no commit; the next writer removes it")
    with _noting(report):
        _check_documents(report, view)


def sound_segment(
    report: CheckReport,
    store: Store,
    view: ReadTransaction,
    record: SegmentRecord,
    dead: NDArray[np.int64] | None,
) -> Segment | None:
    """A segment once all of it was read and found right; None, and problems in the report, if it was not."""
    files, sound = _sound_files(report, store, record), None
    with _noting(report):
        if files is not None:
            segment = Segment(record, store.spec, files, dead)
            _ = segment.multi, segment.coded, segment.sparse  # checks the offsets
            _check_fixed(segment, store, view)
            if segment.residual_file is not None:
                segment.residual_file.check_values()
            if segment.centroid_ids_file is not None:
                segment.centroid_ids_file.check_values()
            if segment.dense_ivf_file is not None and segment.dense is not None:
                segment.dense_ivf_file.check_values(segment.dense)
            if segment.text_index_file is not None:
                segment.text_index_file.check_values(segment.docs)
            if segment.sparse_file is not None:
                segment.sparse_file.check_values()
            sound = segment
    return sound


def _check_fixed(segment: Segment, store: Store, view: ReadTransaction) -> None:
    """The catalogue says how many vectors a passage has, or that it may be any number; each segment must agree."""
    pooling = pooling_in(read_meta(view)["facts"])
    fixed = store.spec.fixed if pooling is None else pooling.fixed
    if segment.fixed != fixed:
        kept = ["any number" if number is None else str(number) for number in (segment.fixed, fixed)]
        raise CorruptIndexError(
            f"segment {segment.number} keeps {kept[0]} of vectors for a passage, and the catalogue says {kept[1]}"
        )


def _check_words(report: CheckReport, view: ReadTransaction) -> None:
    for name, sql in (
        ("are in the full-text index alone", "SELECT id FROM words_docsize EXCEPT SELECT doc FROM documents"),
        ("are not in the full-text index", "SELECT doc FROM documents EXCEPT SELECT id FROM words_docsize"),
    ):
        n_strays = view.rows(f"SELECT COUNT(*) FROM ({sql})")[0][0]
        if n_strays:
            report.problems.append(f"{CATALOGUE}: {n_strays} documents {name}")
    # Asking FTS5 to check itself is written as an insert, so it needs a connection that could write.
    catalogue = report.path / CATALOGUE
    try:
        connection = connect(catalogue, "rw")
        try:
            connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        with storage_errors(catalogue):
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_BUSY):
                report.notes.append(f"the full-text index was not checked in depth: {error}")
            else:
                raise


def _sound_files(report: CheckReport, store: Store, record: SegmentRecord) -> dict[str, SegmentFile] | None:
    """The files of a segment, each read whole; None if one of them does not match its checksums."""
    files, names = {}, None
    with _noting(report):
        names = file_names(record, store.spec)
    for name in names or []:
        with _noting(report):
            file = open_file(store.path, record, name)
            file.verify()
            files[name] = file
            report.n_bytes += file.record.nbytes
    return files if names is not None and len(files) == len(names) else None


def _check_documents(report: CheckReport, view: ReadTransaction) -> None:
    damage = read_tuned_params(view).damage
    if damage:
        report.problems.append(f"{CATALOGUE}: {damage}; run plait tune anew, or with --reset")
    damage = read_weights(view).damage
    if damage:
        report.problems.append(f"{CATALOGUE}: {damage}; run plait tune --weights anew, or plait tune --reset")
    among = not_deleted(view.count("format"))
    report.n_documents = view.rows(f"SELECT COUNT(*) FROM documents WHERE {among}")[0][0]
    counted = view.count("n_documents")
    if counted != report.n_documents:
        report.problems.append(f"{CATALOGUE} counts {counted} documents and has {report.n_documents}")
    if view.count("format") >= GRAVES_FORMAT:
        n_empty = view.rows("SELECT COUNT(*) FROM graves WHERE doc NOT IN (SELECT doc FROM documents)")[0][0]
        if n_empty:
            report.problems.append(f"{CATALOGUE}: {n_empty} documents are deleted that are not there")
    sql = "SELECT COUNT(*) FROM documents WHERE segment NOT IN (SELECT segment FROM segments)"
    n_homeless = view.rows(sql)[0][0]
    if n_homeless:
        report.problems.append(f"{n_homeless} documents are in segments that are not listed")
