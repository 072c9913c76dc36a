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

from plait.index.catalogue import GRAVES_FORMAT, Stretch, chunks, marks, read_count
from plait.index.words import remove_words, rewrite_words


def living(format_number: int, number: str = "doc") -> str:
    """The SQL condition that holds for documents that are not deleted, by the column that has their number. An index of
    an older format has no graves: what was deleted was taken out at once."""
    return f"{number} NOT IN (SELECT doc FROM graves)" if format_number >= GRAVES_FORMAT else "TRUE"


def bury_named(connection: sqlite3.Connection, ids: Sequence[str]) -> int:
    """Deletes documents by id; says how many were there. The cost is that of what is deleted, and no text is read."""
    docs: list[int] = []
    among = living(read_count(connection, "format"))
    for some in chunks(list(dict.fromkeys(ids))):
        found = connection.execute(f"SELECT doc FROM documents WHERE id IN ({marks(len(some))}) AND {among}", some)
        docs += [doc for (doc,) in found]
    return bury(connection, docs)


def bury(connection: sqlite3.Connection, docs: Sequence[int]) -> int:
    """The same by their numbers, all of which must be there and not deleted."""
    if docs:
        connection.execute("CREATE TABLE IF NOT EXISTS graves (doc INTEGER PRIMARY KEY)")
        connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'format'", [GRAVES_FORMAT])
    for some in chunks(sorted(docs)):
        _bury_rows(connection, some)
        connection.executemany("INSERT INTO graves VALUES (?)", ((doc,) for doc in some))
    return len(docs)


def make_room(connection: sqlite3.Connection, ids: Sequence[str]) -> int:
    """Takes out the documents that have these ids, so that others may have them; says how many were not deleted."""
    among, n_living = living(read_count(connection, "format")), 0
    for some in chunks(list(dict.fromkeys(ids))):
        sql = f"SELECT doc, {among} FROM documents WHERE id IN ({marks(len(some))}) ORDER BY doc"
        found = connection.execute(sql, some).fetchall()
        alive = [doc for doc, lives in found if lives]
        _bury_rows(connection, alive)
        _remove(connection, [doc for doc, _ in found])
        n_living += len(alive)
    return n_living


def empty_graves(connection: sqlite3.Connection, stretch: Stretch | None = None) -> None:
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
        rewrite_words(connection)
    else:
        _remove(connection, docs)


def _bury_rows(connection: sqlite3.Connection, docs: Sequence[int]) -> None:
    sql = f"SELECT segment, first_row, n_rows FROM documents WHERE doc IN ({marks(len(docs))}) ORDER BY doc"
    places = connection.execute(sql, docs).fetchall()
    rows = ((segment, row) for segment, first, n_rows in places for row in range(first, first + n_rows))
    connection.executemany("INSERT INTO tombstones VALUES (?, ?)", rows)


def _remove(connection: sqlite3.Connection, docs: Sequence[int]) -> None:
    """Takes rows and words out for good; the numbers ascend."""
    has_graves = read_count(connection, "format") >= GRAVES_FORMAT
    for some in chunks(docs):
        named = f"WHERE doc IN ({marks(len(some))})"
        sql = f"SELECT doc, title, text FROM documents {named} ORDER BY doc"
        remove_words(connection, connection.execute(sql, some).fetchall())
        connection.execute(f"DELETE FROM documents {named}", some)
        if has_graves:
            connection.execute(f"DELETE FROM graves {named}", some)
