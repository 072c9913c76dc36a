"""Repair: removes what cannot be read and keeps the rest, in one commit, and reports what was lost.

A segment with damaged or missing files is removed with its documents. If the damaged files only make searches faster,
those files are removed instead, and the next compaction writes them again. A document that does not match its segment
or its content digest is removed alone, and so is a damaged attachment. The projection of an index is needed to read its
multi vectors: if it is damaged, nothing is repaired. The texts of removed documents that are intact
can be saved to a file, from which `plait index` encodes them again. The full-text table is rebuilt. If SQLite cannot
read the catalogue itself, only a backup helps.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.errors import CorruptIndexError, PlaitError, StoreError
from plait.storage import catalogue
from plait.storage.attachments import delete_attachment
from plait.storage.catalogue import SegmentRecord, chunks, placeholders
from plait.storage.check import CheckReport, check, check_segment
from plait.storage.connection import CATALOGUE, ReadTransaction
from plait.storage.deletes import not_deleted, purge_without_words
from plait.storage.files.centroid_ids import CENTROID_IDS
from plait.storage.files.dense_ivf import DENSE_IVF
from plait.storage.files.text_index import TEXT_INDEX
from plait.storage.fsync import storage_errors, sync_file, sync_folder
from plait.storage.projections import ADVICE, ATTACHMENT
from plait.storage.saved_settings import read_tuned_params, write_tuned_params
from plait.storage.segment import Segment, segment_folder
from plait.storage.store import Store
from plait.storage.validate import matches_digest
from plait.storage.writer import Writer
from plait.text.fts_table import BATCH, check_ascending, read_analyser, rebuild_fts

DERIVED_FILES = (DENSE_IVF, CENTROID_IDS, TEXT_INDEX)  # their content is also in other files


@dataclass(slots=True)
class RepairReport:
    """What a repair did."""

    path: Path
    problems: list[str] = field(default_factory=list)  # as `check` reported them
    removed_ids: list[str] = field(default_factory=list)
    removed_segments: list[int] = field(default_factory=list)
    slower_segments: list[SegmentRecord] = field(default_factory=list)  # without the files that made searches faster
    intact_docs: list[int] = field(default_factory=list)  # numbers of removed documents whose texts are intact
    n_kept: int = 0
    removed_params: bool = False  # the tuned params could not be read
    removed_attachments: list[str] = field(default_factory=list)  # their names


def repair(path: Path, *, rescue: Path | None = None) -> RepairReport:
    """Repairs the index at `path`. The intact texts of removed documents are written to the new file `rescue`. Raises
    if the catalogue itself cannot be read."""
    checked = check(path)
    report = RepairReport(path, problems=checked.problems, removed_attachments=checked.damaged_attachments)
    if ATTACHMENT in checked.damaged_attachments:
        raise CorruptIndexError(
            f"{path} has a damaged projection ({checked.problems[0]}), and queries cannot be compared with its multi "
            f"vectors without it; nothing was repaired; {ADVICE}"
        )
    with Store.open(path) as store:
        if not report.problems:
            report.n_kept = _n_documents(path)
            return report
        with store.writer() as writer:
            _check_database(writer)
            intact = _intact_segments(store, report)
            damaged_docs = _damaged_documents(writer, intact, report)
            if rescue is not None and report.intact_docs:
                write_rescue_file(writer.connection, report.intact_docs, rescue)
            with writer.repair_transaction() as connection:
                _remove_damage(connection, intact, damaged_docs, report)
            for record in report.slower_segments:
                for name in DERIVED_FILES:
                    with suppress(OSError):  # no commit lists them any more
                        (segment_folder(path, record.number) / name).unlink()
    remaining = check(path).problems
    if remaining:
        raise CorruptIndexError(
            f"{path} could not be repaired: {remaining[0]}; restore the index from a copy, or build it again"
        )
    return report


def free_rescue_path(index: Path) -> Path:
    """A path beside the index that does not exist: `my-index.lost.jsonl`, or one with a number."""
    index = index.resolve()
    path, number = index.with_name(f"{index.name}.lost.jsonl"), 1
    while os.path.lexists(path):
        number += 1
        path = index.with_name(f"{index.name}.lost-{number}.jsonl")
    return path


def write_rescue_file(connection: sqlite3.Connection, docs: Sequence[int], file: Path) -> None:
    """Writes documents of the catalogue as JSON lines to a new file; durable when this returns."""
    try:
        with storage_errors(file), file.open("xb") as lines:
            for chunk in chunks(docs):
                condition = f"doc IN ({placeholders(len(chunk))})"
                sql = f"SELECT id, title, text, metadata FROM documents WHERE {condition} ORDER BY doc"
                for id, title, text, metadata in connection.execute(sql, chunk):
                    fields = {"id": id, "title": title, "text": text, "metadata": json.loads(metadata)}
                    lines.write(json.dumps(fields, ensure_ascii=False).encode() + b"\n")
            lines.flush()
            sync_file(lines.fileno())
            sync_folder(file.parent)
    except StoreError as error:
        raise StoreError(
            f"the texts of {len(docs):,} documents could not be saved, so nothing was repaired: {error}; name another "
            f"file for them (--rescue)"
        ) from error


def _n_documents(path: Path) -> int:
    with ReadTransaction(path / CATALOGUE) as view:
        return view.count("n_documents")


def _check_database(writer: Writer) -> None:
    with storage_errors(writer.path):
        lines = [line for (line,) in writer.connection.execute("PRAGMA integrity_check(20)")]
    # The full-text table is derived from the texts and can be rebuilt; the rest cannot.
    serious = [line for line in lines if line != "ok" and "words" not in line and "fts5" not in line.lower()]
    if serious:
        raise StoreError(
            f"{writer.path / CATALOGUE} is damaged ({serious[0]}) and cannot be repaired; restore the index from a "
            f"copy, or build it again"
        )


def _intact_segments(store: Store, report: RepairReport) -> dict[int, Segment]:
    """The segments whose files are intact, except for derived files. Their deleted rows are computed later."""
    intact: dict[int, Segment] = {}
    with ReadTransaction(store.path / CATALOGUE) as view:
        report.removed_params = bool(read_tuned_params(view).damage)
        for (number,) in view.rows("SELECT segment FROM segments ORDER BY segment"):
            segment = None
            with suppress(PlaitError):
                segment = _intact_segment(store, view, number, report)
            if segment is None:
                report.removed_segments.append(number)
            else:
                intact[number] = segment
    return intact


def _intact_segment(store: Store, view: ReadTransaction, number: int, report: RepairReport) -> Segment | None:
    record = catalogue.read_segment(view, number)
    segment = check_segment(CheckReport(store.path), store, view, record, None)
    needed = {name: file for name, file in record.files.items() if name not in DERIVED_FILES}
    if segment is None and needed != record.files:
        record = replace(record, files=needed)
        segment = check_segment(CheckReport(store.path), store, view, record, None)
        report.slower_segments += [record] if segment is not None else []
    return segment


def _damaged_documents(writer: Writer, intact: dict[int, Segment], report: RepairReport) -> list[int]:
    """The numbers of documents that lost their rows, or whose content does not match its digest."""
    damaged: list[int] = []
    last = -1
    columns = "doc, id, title, text, metadata, digest, segment, first_row, n_rows"
    while True:
        with storage_errors(writer.path):
            documents = writer.connection.execute(
                f"SELECT {columns} FROM documents WHERE doc > ? AND {not_deleted()} ORDER BY doc LIMIT ?", [last, BATCH]
            ).fetchall()
        if not documents:
            return damaged
        check_ascending(last, documents)
        last = documents[-1][0]
        for doc, id, title, text, metadata, digest, number, first_row, n_rows in documents:
            rows = _document_rows(intact.get(number), doc, first_row, n_rows)
            is_intact = matches_digest(id, text, title, metadata, digest)
            if rows is None or not is_intact or intact[number].ends[rows].max() > len(text):
                damaged.append(doc)
                report.intact_docs += [doc] if is_intact else []


def _document_rows(segment: Segment | None, doc: int, first_row: object, n_rows: object) -> slice | None:
    """The rows of a document; None if they do not belong to it."""
    if segment is None or not isinstance(first_row, int) or not isinstance(n_rows, int):
        return None
    rows = slice(first_row, first_row + n_rows)
    inside = 0 <= rows.start < rows.stop <= segment.n_rows
    return rows if inside and bool(np.all(segment.docs[rows] == doc)) else None


def _remove_damage(
    connection: sqlite3.Connection, intact: dict[int, Segment], damaged_docs: list[int], report: RepairReport
) -> None:
    """The steps of the one transaction."""
    purge_without_words(connection)
    for chunk in chunks(damaged_docs):
        named = f"WHERE doc IN ({placeholders(len(chunk))})"
        ids = connection.execute(f"SELECT id FROM documents {named} ORDER BY doc", chunk)
        report.removed_ids += [str(id) for (id,) in ids]
        connection.execute(f"DELETE FROM documents {named}", chunk)
    for number in report.removed_segments:
        connection.execute("DELETE FROM segments WHERE segment = ?", [number])
    for record in report.slower_segments:
        catalogue.update_segment_files(connection, record)
    connection.execute("DELETE FROM deleted_rows")
    for number, segment in intact.items():
        deleted = np.flatnonzero(~_claimed_rows(connection, segment))
        connection.executemany("INSERT INTO deleted_rows VALUES (?, ?)", ((number, int(row)) for row in deleted))
    report.n_kept = connection.execute("SELECT COUNT(*) FROM documents").fetchone()[0]
    connection.execute("UPDATE meta SET value = ? WHERE key = 'n_documents'", [report.n_kept])
    next_segment = connection.execute("SELECT COALESCE(MAX(segment), 0) + 1 FROM segments").fetchone()[0]
    connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'next_segment'", [next_segment])
    if report.removed_params:
        write_tuned_params(connection, None)
    for name in report.removed_attachments:
        delete_attachment(connection, name)
    rebuild_fts(connection, read_analyser(connection.execute))  # it may have words of removed documents


def _claimed_rows(connection: sqlite3.Connection, segment: Segment) -> NDArray[np.bool_]:
    """Which rows belong to a document."""
    claimed = np.zeros(segment.n_rows, bool)
    bounds = [int(segment.docs[0]), int(segment.docs[-1]), segment.number] if segment.n_rows else [0, -1, 0]
    sql = "SELECT first_row, n_rows FROM documents WHERE doc BETWEEN ? AND ? AND segment = ?"
    for first_row, n_rows in connection.execute(sql, bounds):
        claimed[first_row : first_row + n_rows] = True
    return claimed
