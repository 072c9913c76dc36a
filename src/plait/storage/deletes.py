"""Deleting documents by tombstones.

A delete writes the numbers of documents to `deleted_documents` and their rows to `deleted_rows`, and leaves everything
else in place: removing words from the full-text table would cost as much as adding them. Every reader of documents or
words skips tombstoned documents. They are purged when their segment is rewritten, or when their id is used again.

A document is tombstoned iff its rows are. Until purged it still counts in N, avgdl and df of BM25. Each function is a
step inside a transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plait.storage.catalogue import N_ROWS, SegmentRun, chunks, placeholders, read_count
from plait.storage.stored_values import stored_number
from plait.storage.watch import Watch
from plait.text.analyser import Analyser
from plait.text.fts_table import check_ascending, rebuild_fts, remove_from_fts

if TYPE_CHECKING:
    from plait.filters import Condition  # readers need not wait for its import

PLACEMENT = "doc, segment, first_row, n_rows"
Placed = tuple[int, int, int, int]


def not_deleted(column: str = "doc") -> str:
    """The SQL condition for documents that are not deleted; `column` has their number."""
    return f"{column} NOT IN (SELECT doc FROM deleted_documents)"


def delete_by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> int:
    """Deletes documents; returns how many existed. The cost grows with the documents deleted, not with the index."""
    return _delete(connection, [placed for chunk in chunks(sorted(set(ids))) for placed in _find(connection, chunk)])


def delete_by_condition(connection: sqlite3.Connection, condition: Condition) -> int:
    """Deletes the documents that a filter accepts; returns how many."""
    sql = f"SELECT {PLACEMENT} FROM documents WHERE ({condition.sql}) AND {not_deleted()}"
    watch = Watch(connection)
    try:
        documents = watch.fetch(sql, condition.parameters)
    finally:
        watch.end()
    return _delete(connection, documents)


def purge_ids(connection: sqlite3.Connection, analyser: Analyser, ids: Sequence[str]) -> int:
    """Deletes and purges the documents with these ids, so that new documents may use the ids; returns how many were not
    deleted before."""
    n_live = 0
    for chunk in chunks(list(dict.fromkeys(ids))):
        live = _find(connection, chunk)
        _delete_rows(connection, live)
        sql = f"SELECT doc FROM documents WHERE id IN ({placeholders(len(chunk))}) ORDER BY doc"
        _purge(connection, analyser, [doc for (doc,) in connection.execute(sql, chunk)])
        n_live += len(live)
    return n_live


def purge_deleted(connection: sqlite3.Connection, analyser: Analyser, run: SegmentRun | None = None) -> None:
    """Purges the deleted documents of some segments, or of all."""
    sql = "SELECT doc FROM deleted_documents JOIN documents USING (doc)"
    if run is not None:
        sql += f" WHERE segment IN ({', '.join(map(str, run.segments))})"
    docs = [doc for (doc,) in connection.execute(f"{sql} ORDER BY doc LIMIT {N_ROWS}")]
    check_ascending(-1, [(doc,) for doc in docs])
    if run is None and len(docs) > read_count(connection, "n_documents"):
        # Most documents go: adding the words of the rest costs less than removing the words of these.
        purge_without_words(connection)
        rebuild_fts(connection, analyser)
    else:
        _purge(connection, analyser, docs)


def purge_without_words(connection: sqlite3.Connection) -> None:
    """Purges all deleted documents, but leaves their words; the caller rebuilds the full-text table."""
    connection.execute("DELETE FROM documents WHERE doc IN (SELECT doc FROM deleted_documents)")
    connection.execute("DELETE FROM deleted_documents")


def _find(connection: sqlite3.Connection, ids: Sequence[str]) -> list[Placed]:
    """The documents with these ids that are not deleted; `ids` must fit into one statement."""
    sql = f"SELECT {PLACEMENT} FROM documents WHERE id IN ({placeholders(len(ids))}) AND {not_deleted()}"
    return connection.execute(sql, ids).fetchall()


def _delete(connection: sqlite3.Connection, documents: Sequence[Placed]) -> int:
    _delete_rows(connection, documents)
    connection.executemany("INSERT INTO deleted_documents VALUES (?)", ((doc,) for doc, *_ in sorted(documents)))
    return len(documents)


def _delete_rows(connection: sqlite3.Connection, documents: Sequence[Placed]) -> None:
    sizes = dict(connection.execute("SELECT segment, n_rows FROM segments")) if documents else {}
    for doc, segment, first, n_rows in documents:
        size = stored_number(sizes.get(segment), f"the number of rows of segment {segment!r:.60}")
        stored_number(first, f"the first row of document {doc}", most=size)
        stored_number(n_rows, f"the number of rows of document {doc}", most=size - first)
    in_order = sorted(documents, key=lambda placed: placed[1:])
    rows = ((segment, row) for _, segment, first, n_rows in in_order for row in range(first, first + n_rows))
    connection.executemany("INSERT INTO deleted_rows VALUES (?, ?)", rows)


def _purge(connection: sqlite3.Connection, analyser: Analyser, docs: Sequence[int]) -> None:
    """Removes documents with their words; `docs` ascend."""
    for chunk in chunks(docs):
        named = f"WHERE doc IN ({placeholders(len(chunk))})"
        sql = f"SELECT doc, title, text FROM documents {named} ORDER BY doc"
        remove_from_fts(connection, analyser, connection.execute(sql, chunk).fetchall())
        connection.execute(f"DELETE FROM documents {named}", chunk)
        connection.execute(f"DELETE FROM deleted_documents {named}", chunk)
