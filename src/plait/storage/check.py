"""Reads a whole index and reports everything that is wrong with it. Changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.encode.protocol import EmbeddingSpec
from plait.errors import CorruptIndexError, NewerFormatError, NotAnIndexError, PlaitError
from plait.storage.attachments import (
    attachment_names,
    leftover_attachments,
    live_attachments,
    read_attachment,
    verify_attachment,
)
from plait.storage.catalogue import SegmentRecord, parse_pooling, read_deleted_rows, read_meta, read_segments
from plait.storage.connection import CATALOGUE, ReadTransaction, connect
from plait.storage.deletes import not_deleted
from plait.storage.folder import ATTACHMENTS, SEGMENTS, foreign_entry
from plait.storage.fsync import storage_errors
from plait.storage.network import network_file_system
from plait.storage.projections import ATTACHMENT, read_facts, read_projection, stored_spec
from plait.storage.saved_settings import read_fusion_weights, read_tuned_params
from plait.storage.segment import DENSE, MULTI, Segment, file_names, leftover_folders, open_file
from plait.storage.segment_file import SegmentFile, rows_not_finite, slices
from plait.storage.store import Store
from plait.storage.validate import matches_digest
from plait.storage.verification import verify_again
from plait.text.fts_table import check_ascending

MAX_ATTEMPTS = 3
SHARED_PAGE = "2nd reference to page"  # in SQLite's list of problems: two tables, or two parts of one, share a page
DOCUMENTS_AT_ONCE = 1000  # whose texts are in memory


@dataclass(slots=True)
class CheckReport:
    """Problems are damage. Notes are leftovers that the next writer removes, and checks that could not be made."""

    path: Path
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_documents: int = 0
    n_passages: int = 0
    n_segments: int = 0
    n_bytes: int = 0  # of the files that were compared with their checksums
    damaged_attachments: list[str] = field(default_factory=list)  # names; see plait.storage.attachments

    @property
    def ok(self) -> bool:
        return not self.problems


def check(path: Path) -> CheckReport:
    """Checks every file, row and document of the newest commit. Raises only if there is no index to check."""
    for _ in range(MAX_ATTEMPTS):
        report, commit = CheckReport(path), None
        with _collect_problems(report):
            store = Store.open(path)
            with ReadTransaction(path / CATALOGUE) as view:
                commit = view.commit
                _check_index(report, store, view)
        # A compaction may have removed files while they were being read; then the newer commit is checked.
        if commit is None or not report.problems or _newest_commit(path) == commit:
            break
    return report


def _newest_commit(path: Path) -> int:
    with ReadTransaction(path / CATALOGUE) as view:
        return view.commit


@contextmanager
def _collect_problems(report: CheckReport) -> Iterator[None]:
    """Adds an error inside the block to the report, so that the next check can follow."""
    try:
        yield
    except (NotAnIndexError, NewerFormatError):
        raise
    except PlaitError as error:
        report.problems.append(str(error))
    except FileNotFoundError as error:
        report.problems.append(f"{error.filename} is missing, and the catalogue lists it")


def _check_index(report: CheckReport, store: Store, view: ReadTransaction) -> None:
    with _collect_problems(report):
        lines = [line for (line,) in view.rows("PRAGMA integrity_check(20)")]
        report.problems += [f"{CATALOGUE}: {line}" for line in lines if line != "ok"]
        if any(SHARED_PAGE in line for line in lines):
            return  # a table may have no end, and the checks below read whole tables
    with _collect_problems(report):
        _check_words(report, view)
    with _collect_problems(report):
        records, deleted = read_segments(view), read_deleted_rows(view)
        report.n_segments = len(records)
        unlisted = sorted(set(deleted) - {record.number for record in records})
        if unlisted:
            report.problems.append(f"the catalogue deletes rows of segments that it does not list: {unlisted[:10]}")
        segments: dict[int, Segment] = {}
        for record in records:
            segment = check_segment(report, store, view, record, deleted.get(record.number))
            if segment is not None:
                segments[record.number] = segment
                report.n_passages += segment.n_live
        report.problems += _document_problems(segments, view)
        for folder in leftover_folders(store.path, {record.number for record in records}):
            _note_leftover(report, int(folder.name), SEGMENTS)
    with _collect_problems(report):
        _check_catalogue(report, view)
    disk = network_file_system(store.path)
    if disk is not None:
        report.notes.append(
            f"the index is on a network file system ({disk}): use it from one computer, or copy it to a local disk "
            f"with plait backup"
        )
    with _collect_problems(report):
        names = attachment_names(view.rows)
        if ATTACHMENT not in names and read_facts(view.rows) is not None:
            report.problems.append("the catalogue names a projection and lists no attachment for it")
            report.damaged_attachments.append(ATTACHMENT)
        report.damaged_attachments += [name for name in names if not _check_attachment(report, view, name)]
        live = live_attachments(view.rows)
        for number in [] if live is None else leftover_attachments(store.path, live):
            _note_leftover(report, number, ATTACHMENTS)


def _note_leftover(report: CheckReport, number: int, within: str) -> None:
    foreign = foreign_entry(report.path, number, within)
    what = "the next writer removes it" if foreign is None else f"it has {foreign}, which plait did not write"
    report.notes.append(f"{report.path / within / f'{number:06d}'} belongs to no commit; {what}")


def _check_attachment(report: CheckReport, view: ReadTransaction, name: str) -> bool:
    n_problems = len(report.problems)
    with _collect_problems(report):
        record = read_attachment(view.rows, name)
        assert record is not None
        verify_attachment(report.path, record)
        if name == ATTACHMENT and (projection := read_projection(view.rows, report.path)) is not None:
            _ = projection.fitted  # reading it checks its values
        report.n_bytes += record.nbytes
    return len(report.problems) == n_problems


def check_segment(
    report: CheckReport,
    store: Store,
    view: ReadTransaction,
    record: SegmentRecord,
    deleted_rows: NDArray[np.int64] | None,
) -> Segment | None:
    """Reads a whole segment; adds problems to the report and returns None if there are any."""
    spec = None
    with _collect_problems(report):
        spec = stored_spec(store.spec, read_facts(view.rows))
    files = None if spec is None else _verified_files(report, store.path, record, spec)
    if spec is None or files is None:
        return None
    n_problems = len(report.problems)
    with _collect_problems(report):
        segment = Segment(record, spec, files, deleted_rows)
        _ = segment.multi, segment.coded, segment.sparse  # reading them checks their offsets
        _check_fixed(segment, store, view)
        _check_projection(segment, view)
        _check_finite(segment)
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
    return segment if len(report.problems) == n_problems else None


def _verified_files(
    report: CheckReport, index: Path, record: SegmentRecord, spec: EmbeddingSpec
) -> dict[str, SegmentFile] | None:
    """The files of a segment, compared with their checksums; None if one of them is damaged."""
    files, names = {}, None
    with _collect_problems(report):
        names = file_names(record, spec)
    for name in names or []:
        with _collect_problems(report):
            file = open_file(index, record, name)
            verify_again(file)
            files[name] = file
            report.n_bytes += file.record.nbytes
    return files if names is not None and len(files) == len(names) else None


def _check_fixed(segment: Segment, store: Store, view: ReadTransaction) -> None:
    """Every segment must have as many multi vectors for each passage as the catalogue says, or any number."""
    pooling = parse_pooling(read_meta(view).get("properties"))
    fixed = store.spec.fixed if pooling is None else pooling.fixed
    if segment.fixed != fixed:
        stored, expected = ("any number" if number is None else str(number) for number in (segment.fixed, fixed))
        raise CorruptIndexError(
            f"segment {segment.number} stores {stored} of vectors for every passage, but the catalogue says {expected}"
        )


def _check_projection(segment: Segment, view: ReadTransaction) -> None:
    """The multi vectors of every segment have passed the projection that queries pass."""
    facts = read_facts(view.rows)
    expected = None if facts is None else facts.number
    if segment.projection != expected:
        raise CorruptIndexError(
            f"segment {segment.number} holds vectors of projection {segment.projection!r:.50}, but the catalogue says "
            f"{expected}"
        )


def _check_finite(segment: Segment) -> None:
    """No writer stores a vector that is not finite."""
    arrays = {DENSE: segment.dense, MULTI: None if segment.multi is None else segment.multi.values}
    for name, values in arrays.items():
        start = 0
        for piece in slices(values) if values is not None else ():
            wrong = rows_not_finite(piece)
            if len(wrong):
                raise segment.files[name].damaged(f"vector {start + wrong[0]} holds a value that is not finite")
            start += len(piece)


def _check_words(report: CheckReport, view: ReadTransaction) -> None:
    for what, sql in (
        ("are only in the full-text table", "SELECT id FROM words_docsize EXCEPT SELECT doc FROM documents"),
        ("are not in the full-text table", "SELECT doc FROM documents EXCEPT SELECT id FROM words_docsize"),
    ):
        n_documents = view.rows(f"SELECT COUNT(*) FROM ({sql})")[0][0]
        if n_documents:
            report.problems.append(f"{CATALOGUE}: {n_documents} documents {what}")
    # FTS5's own check is written as an INSERT, so it needs a connection that can write.
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
                report.notes.append(f"the full-text table was not checked in depth: {error}")
            else:
                raise


def _check_catalogue(report: CheckReport, view: ReadTransaction) -> None:
    damage = read_tuned_params(view).damage
    if damage:
        report.problems.append(f"{CATALOGUE}: {damage}; run plait tune again, or with --reset")
    damage = read_fusion_weights(view).damage
    if damage:
        report.problems.append(f"{CATALOGUE}: {damage}; run plait tune --fusion again, or plait tune --reset")
    report.n_documents = view.rows(f"SELECT COUNT(*) FROM documents WHERE {not_deleted()}")[0][0]
    counted = view.count("n_documents")
    if counted != report.n_documents:
        report.problems.append(f"{CATALOGUE} counts {counted} documents, but has {report.n_documents}")
    n_missing = view.rows("SELECT COUNT(*) FROM deleted_documents WHERE doc NOT IN (SELECT doc FROM documents)")[0][0]
    if n_missing:
        report.problems.append(f"{CATALOGUE}: {n_missing} deleted documents do not exist")
    sql = "SELECT COUNT(*) FROM documents WHERE segment NOT IN (SELECT segment FROM segments)"
    n_unlisted = view.rows(sql)[0][0]
    if n_unlisted:
        report.problems.append(f"{n_unlisted} documents are in segments that are not listed")


def _document_problems(segments: Mapping[int, Segment], view: ReadTransaction) -> list[str]:
    """Compares the documents of the catalogue with the rows of these segments, in one pass; documents of other segments
    are only compared with their digests."""
    problems = [problem for segment in segments.values() for problem in _row_problems(segment)]
    claimed = {number: np.zeros(segment.n_rows, bool) for number, segment in segments.items()}
    last = -1
    while rows := view.rows(
        f"SELECT doc, id, title, text, metadata, digest, segment, first_row, n_rows, {not_deleted()} FROM documents"
        " WHERE doc > ? ORDER BY doc LIMIT ?",
        [last, DOCUMENTS_AT_ONCE],
    ):
        check_ascending(last, rows)
        last = rows[-1][0]
        for doc, id, title, text, metadata, digest, number, first_row, n_rows, is_live in rows:
            if not matches_digest(id, text, title, metadata, digest):
                problems.append(f"document {id!r} does not match its content digest; it was changed")
            if type(first_row) is not int or type(n_rows) is not int:
                problems.append(f"document {id!r} claims invalid rows: {first_row!r:.50}, {n_rows!r:.50}")
            elif is_live and number in segments:
                claimed_rows = slice(first_row, first_row + n_rows)
                problems += [
                    f"document {id!r} of segment {number} {problem}"
                    for problem in _claim_rows(segments[number], claimed[number], doc, claimed_rows, len(text))
                ]
    for number, segment in segments.items():
        problems += _claim_problems(segment, claimed[number])
    return problems


def _row_problems(segment: Segment) -> list[str]:
    problems = []
    if np.any(segment.docs[1:] < segment.docs[:-1]):
        problems.append(f"segment {segment.number}: its rows are not in the order of their documents")
    if np.any(segment.starts > segment.ends):
        problems.append(f"segment {segment.number}: a passage ends before it starts")
    return problems


def _claim_rows(segment: Segment, claimed: NDArray[np.bool_], doc: int, rows: slice, n_characters: int) -> list[str]:
    """Marks the rows of a document as claimed; returns its problems."""
    if not 0 <= rows.start < rows.stop <= segment.n_rows or np.any(segment.docs[rows] != doc):
        return [f"claims rows {rows.start} to {rows.stop}, which do not belong to it"]
    claimed[rows] = True
    if segment.ends[rows].max() > n_characters:
        return [f"has a passage that ends beyond its text of {n_characters} characters"]
    return []


def _claim_problems(segment: Segment, claimed: NDArray[np.bool_]) -> list[str]:
    live = np.ones(segment.n_rows, bool) if segment.live is None else segment.live
    counts = {
        "live and belong to no document": int(np.sum(live & ~claimed)),
        "deleted and belong to a document": int(np.sum(claimed & ~live)),
    }
    return [f"segment {segment.number}: {count} rows are {what}" for what, count in counts.items() if count]
