"""Documents that are deleted and still take space.

A delete writes the numbers of documents into the table `graves` and their rows into `tombstones`, and leaves the rest
as it is: taking words out of the full-text index would cost as much as putting them in did. All that reads documents
or words passes the graves over. What is in them goes for good when the segment that has its vectors is rewritten, and
where its id is used again.

So a document is in a grave if and only if its rows are dead. Until it has gone, BM25 counts it in how long and how many
documents are, and how many have a word. Each function is a step within a transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plait.storage.catalogue import GRAVES_FORMAT, SegmentRun, chunks, marks, read_count
from plait.text.analyser import Analyser
from plait.text.fts_table import rebuild_fts, remove_from_fts

if TYPE_CHECKING:
    from plait.filters import Condition  # readers, who are many, do not wait for it

PLACE = "doc, segment, first_row, n_rows"
Place = tuple[int, int, int, int]


def not_deleted(format_number: int, number: str = "doc") -> str:
    """The SQL condition that holds for documents that are not deleted, by the column that has their number. An index of
    an older format has no graves: what was deleted was taken out at once."""
    return f"{number} NOT IN (SELECT doc FROM graves)" if format_number >= GRAVES_FORMAT else "TRUE"


def delete_by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> int:
    """Deletes documents by id; says how many were there. The cost is that of what is deleted, and no text is read."""
    return _bury(connection, [place for some in chunks(sorted(set(ids))) for place in _places(connection, some)])


def delete_where_sql(connection: sqlite3.Connection, condition: Condition) -> int:
    """The same for what a filter accepts."""
    sql = f"SELECT {PLACE} FROM documents WHERE ({condition.sql}) AND {_living_of(connection)}"
    return _bury(connection, connection.execute(sql, condition.parameters).fetchall())


def free_ids(connection: sqlite3.Connection, analyser: Analyser, ids: Sequence[str]) -> int:
    """Takes out the documents that have these ids, so that others may have them; says how many were not deleted."""
    n_living = 0
    for some in chunks(list(dict.fromkeys(ids))):
        alive = _places(connection, some)
        _bury_rows(connection, alive)
        there = connection.execute(f"SELECT doc FROM documents WHERE id IN ({marks(len(some))}) ORDER BY doc", some)
        _remove(connection, analyser, [doc for (doc,) in there])
        n_living += len(alive)
    return n_living


def purge_deleted(connection: sqlite3.Connection, analyser: Analyser, stretch: SegmentRun | None = None) -> None:
    """Takes out for good what was deleted of some segments, or of all."""
    if read_count(connection, "format") < GRAVES_FORMAT:
        return
    sql = "SELECT doc FROM graves JOIN documents USING (doc)"
    if stretch is not None:
        sql += f" WHERE segment IN ({', '.join(map(str, stretch.segments))})"
    docs = [doc for (doc,) in connection.execute(f"{sql} ORDER BY doc")]
    if stretch is None and len(docs) > read_count(connection, "n_documents"):
        # Few are left: the words of those are fewer than the words to remove.
        connection.execute("DELETE FROM documents WHERE doc IN (SELECT doc FROM graves)")
        connection.execute("DELETE FROM graves")
        rebuild_fts(connection, analyser)
    else:
        _remove(connection, analyser, docs)


def _living_of(connection: sqlite3.Connection) -> str:
    return not_deleted(read_count(connection, "format"))


def _places(connection: sqlite3.Connection, ids: Sequence[str]) -> list[Place]:
    """Where those documents are that are there; as many ids as one statement may name."""
    sql = f"SELECT {PLACE} FROM documents WHERE id IN ({marks(len(ids))}) AND {_living_of(connection)}"
    return connection.execute(sql, ids).fetchall()


def _bury(connection: sqlite3.Connection, places: Sequence[Place]) -> int:
    if places:
        connection.execute("CREATE TABLE IF NOT EXISTS graves (doc INTEGER PRIMARY KEY)")
        connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'format'", [GRAVES_FORMAT])
        _bury_rows(connection, places)
        connection.executemany("INSERT INTO graves VALUES (?)", ((doc,) for doc, *_ in sorted(places)))
    return len(places)


def _bury_rows(connection: sqlite3.Connection, places: Sequence[Place]) -> None:
    map_in_order = sorted(places, key=lambda place: place[1:])
    rows = ((segment, row) for _, segment, first, n_rows in map_in_order for row in range(first, first + n_rows))
    connection.executemany("INSERT INTO tombstones VALUES (?, ?)", rows)


def _remove(connection: sqlite3.Connection, analyser: Analyser, docs: Sequence[int]) -> None:
    """Takes rows and words out for good; the numbers ascend."""
    has_graves = read_count(connection, "format") >= GRAVES_FORMAT
    for some in chunks(docs):
        named = f"WHERE doc IN ({marks(len(some))})"
        sql = f"SELECT doc, title, text FROM documents {named} ORDER BY doc"
        remove_from_fts(connection, analyser, connection.execute(sql, some).fetchall())
        connection.execute(f"DELETE FROM documents {named}", some)
        if has_graves:
            connection.execute(f"DELETE FROM graves {named}", some)
