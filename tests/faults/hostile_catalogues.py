"""Changes rows, settings, schema entries and pages of catalogues, and files of index folders, as malice or chance may,
then uses the indexes: each use gives an answer or an error of plait, in time. Nothing else may come of it.

    python -m faults.hostile_catalogues --rounds 5000 --seed 7

The rounds run in a child process. If it hangs or dies, the round counts as such and another child goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

import plait
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.errors import PlaitError

SECONDS = 30  # for one round; a sound index takes a tenth of a second
MEMORY = 3 << 30  # bytes of address space
KINDS = ("plain", "coded")
TESTS = Path(__file__).parents[1]
N_DOCUMENTS, DIM = 24, 8
SPEC = plait.EmbeddingSpec(dense=4, sparse=50, multi=DIM)
TABLES = {
    "meta": ("key", "value"),
    "documents": ("doc", "id", "digest", "segment", "first_row", "n_rows", "title", "metadata", "text"),
    "segments": ("segment", "n_rows", "files"),
    "deleted_rows": ("segment", "row"),
    "deleted_documents": ("doc",),
    "sqlite_sequence": ("name", "seq"),
    "words_data": ("id", "block"),
    "words_idx": ("segid", "term", "pgno"),
    "words_docsize": ("id", "sz"),
    "words_config": ("k", "v"),
}
NUMBERS = (0, 1, -1, 2, 7, 255, 65536, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 62), (1 << 63) - 1, -(1 << 63))
DEEP = "[" * 5000 + "]" * 5000
TEXTS = (
    "",
    "0",
    "1",
    "x",
    "-",
    "[]",
    "{}",
    "null",
    '{"a": 1}',
    "1" * 5000,
    DEEP,
    "\x00",
    "segments",
    "../../x",
    "é" * 99,
)
VALUES = (*NUMBERS, *TEXTS, None, 0.5, -1e308, float("inf"), b"", b"\xff", b"\x00" * 40, b"text")
INVALID_UTF8 = "CAST(x'ff61fe' AS TEXT)"
STATEMENTS = (
    "CREATE VIEW v AS WITH n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
    "CREATE TRIGGER t AFTER INSERT ON segments BEGIN DELETE FROM documents; END",
    "CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM documents; END",
    "CREATE TABLE more (x)",
    "CREATE INDEX more ON documents (text)",
    "CREATE UNIQUE INDEX more ON documents (segment)",
    "DROP TABLE segments",
    "DROP TABLE words",
    "ALTER TABLE documents ADD COLUMN more",
    "ALTER TABLE documents RENAME COLUMN text TO more",
    "DROP INDEX by_field1_value",
    "ANALYZE",
    "PRAGMA user_version = 77",
    "PRAGMA application_id = 77",
    "PRAGMA application_id = 0",
    "PRAGMA encoding = 'UTF-16'",
    "INSERT INTO words (words, rank) VALUES ('crisismerge', 2)",
    "INSERT INTO words (words, rank) VALUES ('rank', 'bm25(10.0, 5.0)')",
    "INSERT INTO words (words) VALUES ('delete-all')",
    "DELETE FROM meta",
    "DELETE FROM documents",
    "DELETE FROM segments",
    "DELETE FROM sqlite_sequence",
    "DELETE FROM words_data",
    "DELETE FROM words_docsize",
    "INSERT INTO segments SELECT segment + 1000000, n_rows, files FROM segments",
    "INSERT INTO segments SELECT segment + 1, n_rows, files FROM segments LIMIT 1",
    "UPDATE documents SET doc = -doc",
    "UPDATE documents SET segment = 1 - segment",
    "INSERT INTO deleted_documents SELECT doc FROM documents",
    "INSERT INTO deleted_documents VALUES (-5)",
    "INSERT OR IGNORE INTO deleted_rows SELECT segment, first_row FROM documents",
    "INSERT OR IGNORE INTO deleted_rows VALUES ('x', 'y')",
    "UPDATE sqlite_sequence SET seq = 9223372036854775807",
    "UPDATE meta SET value = value || value",
    "VACUUM",
)


# -- small indexes of each kind


def make_indexes(folder: Path) -> None:
    """One small index of each kind, with all that a catalogue can hold."""

    rng = np.random.default_rng(0)
    for kind in KINDS:
        language = "de" if kind == "coded" else None
        spec = SPEC
        with plait.open(folder / kind, create=True, spec=spec, language=language, n_threads=1) as index:
            for first in range(0, N_DOCUMENTS, 8):
                index.add_embeddings(_documents(first, 8), _embeddings(rng, 8), merge=False)
            index.create_field_index("n")
            index.delete(["d3", "d9"], merge=False)
            if kind == "coded":
                index.compact()
                index.add_embeddings(_documents(90, 4), _embeddings(rng, 4), merge=False)
                index.delete(["d4"], merge=False)
            with closing(sqlite3.connect(index.path / "catalogue.sqlite")) as connection:
                connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", _settings().items())
                connection.commit()


def _settings() -> dict[str, str]:
    numbers = dict.fromkeys(
        ("n_probe", "n_candidates", "n_code_scored", "n_rescored", "k", "n_queries", "n_passages"), 9
    )
    shares = dict.fromkeys(
        ("target_recall", "recall", "recall_in_codes", "codes_recall", "median_ms", "exhaustive_ms"), 1
    )
    texts = {"recall_of": "codes", "queries": "rows", "date": "today", "stale": "", "exhaustive": False}
    weights = {"fusion": "min-max", "weights": {"bm25": 0.5}, "ndcg": 0.5, "default_ndcg": 0.4, "n_queries": 9}
    return {
        "tuned_params": json.dumps({**numbers, **shares, **texts}),
        "fusion_weights": json.dumps({**weights, "data": "x", "date": "today"}),
        "drift": json.dumps({"n_vectors": 5, "ratio": 1.1}),
    }


def _documents(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"d{n}",
            "title": f"Titel {n % 5}",
            "text": f"der Webstuhl webt Text {n}",
            "n": n,
            "tags": ["a", {"b": n}],
        }
        for n in range(first, first + count)
    ]


def _embeddings(rng: np.random.Generator, count: int) -> Embeddings:
    items = [rng.standard_normal((3, DIM), dtype=np.float32) for _ in range(count)]
    return Embeddings(
        dense=rng.standard_normal((count, 4), dtype=np.float32),
        sparse=SparseVectors.from_items([{number % 40: 1.0, 45: 0.5} for number in range(count)]),
        multi=MultiVectors.from_items([rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in items]),
    )


# -- harm


class Harm:
    """Changes an index; all choices come from one random generator."""

    def __init__(self, rng: random.Random, sources: Path) -> None:
        self._rng, self._sources = rng, sources

    def apply(self, index: Path) -> str:
        """Harms the index once or a few times; says how."""
        kinds = [self._row, self._row, self._setting, self._statement, self._schema, self._page, self._folder]
        return ", ".join(self._once(self._rng.choice(kinds), index) for _ in range(self._rng.choice((1, 1, 1, 2, 3))))

    def _once(self, harm: Callable[[Path], str], index: Path) -> str:
        try:
            return harm(index)
        except OSError as error:  # an earlier change blocks this one: a folder has the name of the file
            return f"nothing ({error.strerror})"

    def _row(self, index: Path) -> str:
        table = self._rng.choice(list(TABLES))
        column = self._rng.choice(TABLES[table])
        value = INVALID_UTF8 if self._rng.random() < 0.1 else "?"
        one = f"LIMIT 1 OFFSET {self._rng.randrange(12)}"
        rows = "1" if self._rng.random() < 0.2 else f"{column} IN (SELECT {column} FROM {table} {one})"
        given = [self._rng.choice(VALUES)] if value == "?" else []
        self._execute(index, f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE {rows}", given)
        return f"{table}.{column} = {given or value!r:.60}"

    def _setting(self, index: Path) -> str:
        """Another value somewhere inside the JSON of a setting, of a list of files or of metadata."""
        table, key, column = self._rng.choice(
            (
                ("meta", "key", "value"),
                ("meta", "key", "value"),
                ("segments", "segment", "files"),
                ("documents", "doc", "metadata"),
            )
        )
        with closing(_connect(index)) as connection, suppress(sqlite3.Error, ValueError, TypeError, RecursionError):
            rows = connection.execute(f"SELECT {key}, {column} FROM {table}").fetchall()
            rows = [row for row in rows if isinstance(row[1], str) and row[1].startswith(("{", "["))]
            name, stored = self._rng.choice(rows or [(0, "[]")])
            changed = json.dumps(self._changed(json.loads(stored)))
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", [changed, name])
            connection.commit()
            return f"{column} of {name!r} = {changed!r:.80}"
        return "nothing"

    def _changed(self, value: Any) -> Any:
        inner = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
        if not inner or self._rng.random() < 0.15:
            return self._rng.choice((*NUMBERS, "x", "", None, True, [], {}, [1], 0.5, -0.5, 1e300, "../x", [[[[]]]]))
        at = self._rng.choice(inner)
        if isinstance(value, dict) and self._rng.random() < 0.1:
            return {key: value[key] for key in value if key != at} | ({"more": 1} if self._rng.random() < 0.5 else {})
        changed = self._changed(value[at])
        return {**value, at: changed} if isinstance(value, dict) else [*value[:at], changed, *value[at + 1 :]]

    def _statement(self, index: Path) -> str:
        statement = self._rng.choice(STATEMENTS)
        self._execute(index, statement)
        return f"{statement:.60}"

    def _schema(self, index: Path) -> str:
        column = self._rng.choice(("type", "name", "tbl_name", "rootpage", "sql"))
        value = self._rng.choice(
            (
                *NUMBERS[:8],
                "table",
                "view",
                "meta",
                "documents",
                None,
                "CREATE TABLE x (y)",
                "CREATE VIEW x AS SELECT 1",
                "",
                DEEP,
            )
        )
        number = self._rng.randrange(1, 15)
        if isinstance(value, str) and self._rng.random() < 0.3:
            number, column, value = 2, "sql", "CREATE TABLE documents (doc INTEGER PRIMARY KEY, id, text AS (hex(doc)))"
        self._execute(index, f"UPDATE sqlite_schema SET {column} = ? WHERE rowid = ?", [value, number])
        return f"schema {number} {column} = {value!r:.60}"

    def _page(self, index: Path) -> str:
        """Bytes of the database file, or a page that takes the place of another."""
        with closing(_connect(index)) as connection, suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        file = index / "catalogue.sqlite"
        if not file.is_file():
            return "nothing"
        content = bytearray(file.read_bytes())
        what = self._rng.choice(("bytes", "bytes", "header", "swap", "copy", "cut", "wal", "zero"))
        n_pages = max(len(content) // 4096, 1)
        one, other = (self._rng.randrange(n_pages) * 4096 for _ in range(2))
        if what == "bytes":
            for _ in range(self._rng.randint(1, 12)):
                at = self._rng.randrange(max(len(content), 1))
                content[at : at + 1] = bytes([self._rng.randrange(256)])
        elif what == "header":  # of a page: its kind, its number of cells, its right child
            at = one + (100 if one == 0 else 0) + self._rng.randrange(12)
            content[at : at + 1] = bytes([self._rng.choice((0, 1, 2, 5, 10, 13, 255))])
        elif what in ("swap", "copy"):
            pages = content[one : one + 4096], content[other : other + 4096]
            content[one : one + 4096] = pages[1]
            if what == "swap":
                content[other : other + 4096] = pages[0]
        elif what == "cut":
            content = content[: self._rng.randrange(len(content) + 1)]
        elif what == "zero":
            content[one : one + 4096] = bytes(4096)
        else:
            (index / "catalogue.sqlite-wal").write_bytes(self._rng.randbytes(self._rng.randrange(9000)))
        file.write_bytes(content)
        return f"pages: {what}"

    def _folder(self, index: Path) -> str:
        """A file that is missing, extra, renamed, empty, of another index, or closed to everybody."""
        files = sorted(path for path in index.rglob("*") if path.is_file())
        if not files:
            return "nothing"
        file = self._rng.choice(files)
        what = self._rng.choice(("missing", "extra", "renamed", "swapped", "other", "empty", "mode", "folder", "cut"))
        other = self._rng.choice(sorted(path for path in self._sources.rglob("*") if path.is_file()))
        if what == "missing":
            file.unlink()
        elif what == "extra":
            folder = index / "segments" / self._rng.choice(("000050", "1", "0000000001", "x", "999999999999999999"))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / self._rng.choice(("rows.plait", "letter.txt"))).write_text("x")
        elif what == "renamed":
            file.rename(
                file.with_name(self._rng.choice(("rows.plait", "dense.plait", "lock", "x", "catalogue.sqlite")))
            )
        elif what == "swapped":
            second = self._rng.choice(files)
            contents = file.read_bytes(), second.read_bytes()
            file.write_bytes(contents[1])
            second.write_bytes(contents[0])
        elif what == "other":
            file.write_bytes(other.read_bytes())
        elif what == "empty":
            file.write_bytes(b"")
        elif what == "mode":
            self._rng.choice((file, file.parent)).chmod(self._rng.choice((0o000, 0o400, 0o500)))
        elif what == "folder":
            file.unlink()
            file.mkdir()
        else:
            file.write_bytes(file.read_bytes()[: self._rng.randrange(file.stat().st_size + 1)])
        return f"{what} {file.relative_to(index)}"

    def _execute(self, index: Path, statement: str, given: list[Any] | None = None) -> None:
        with closing(_connect(index)) as connection, suppress(sqlite3.Error, UnicodeError, OverflowError):
            connection.execute(statement, given or [])
            connection.commit()


def _connect(index: Path) -> sqlite3.Connection:
    file = index / "catalogue.sqlite"
    connection = sqlite3.connect(file if file.is_file() else ":memory:")
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("PRAGMA ignore_check_constraints = ON")
    return connection


# -- use


def _read_all(opened: plait.Index) -> None:
    """Every call that reads documents and fields."""
    opened.get(["d1", "d2", "no such id"])
    opened.count("n < 3")
    list(opened.iterate(2, filter="n >= 0"))
    list(opened.iterate(2, sort="-n"))
    opened.facets("tags")


def uses(index: Path, rng: random.Random) -> dict[str, Callable[[], object]]:
    """What is done with an index, by name."""
    from plait.storage.backup import backup
    from plait.storage.check import check
    from plait.storage.repair import repair

    numbers = np.random.default_rng(rng.randrange(1 << 30))
    query, added = _embeddings(numbers, 1), _embeddings(numbers, 4)

    def search() -> None:
        with plait.open(index, read_only=True, n_threads=1) as opened:
            len(opened), opened.info()
            for mode in ("dense", "sparse", "multi", "hybrid", "bm25"):
                filter = rng.choice((None, "n > 5", "tags = 'a' or n in (1, 2)", "missing = 1"))
                opened.search_embeddings(query, 5, mode=mode, filter=filter, texts=["webt Text 7"])

    def write(step: Callable[[plait.Index], object]) -> Callable[[], None]:
        def use() -> None:
            with plait.open(index, n_threads=1) as opened:
                step(opened)

        return use

    return {
        "search": search,
        "check": lambda: check(index),
        "backup": lambda: backup(index, index.with_name("copy")),
        "add": write(lambda opened: opened.add_embeddings(_documents(rng.choice((2, 200)), 4), added)),
        "read": write(_read_all),
        "update metadata": write(lambda opened: opened.update_metadata({"d2": {"n": 5}, "d5": {"tags": []}})),
        "delete": write(lambda opened: opened.delete(["d1", "d90"])),
        "delete where": write(lambda opened: opened.delete(filter="n < 3")),
        "field": write(lambda opened: opened.create_field_index("tags")),
        "compact": write(lambda opened: opened.compact()),
        "repair": lambda: repair(index, rescue=index.with_name("rescue.jsonl")),
        "create": lambda: plait.open(index, create=True, spec=SPEC, n_threads=1).close(),
        "search again": search,
    }


def play(sources: Path, work: Path, seed: int, number: int) -> str:
    """One round: "answered", "refused", or the foreign error with what led to it."""
    from plait.storage import segment as segments

    rng = random.Random(f"{seed} {number}")
    _remove(work)
    index = work / "index"
    shutil.copytree(sources / rng.choice(KINDS), index)
    harm = Harm(rng, sources).apply(index)
    getattr(segments, "_verified", set()).clear()
    result = "answered"
    chosen = uses(index, rng)
    for name in [name for name in chosen if name.startswith("search") or rng.random() < 0.4]:
        _remove(index.with_name("copy"))
        index.with_name("rescue.jsonl").unlink(missing_ok=True)
        try:
            chosen[name]()
        except PlaitError:
            result = "refused"
        except BaseException:
            return f"foreign {name} after {harm}\n{traceback.format_exc()}"
    return result


def _remove(folder: Path) -> None:
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            with suppress(OSError):
                Path(parent, name).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def child(folder: Path, seed: int, first: int, last: int) -> None:
    """Plays rounds and prints one line for each; ends by a signal if a round takes too long."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in range(first, last):
        signal.alarm(SECONDS)
        print(f"begin {number}", flush=True)
        print(json.dumps(play(folder / "sources", folder / "work", seed, number)), flush=True)


def rounds(folder: Path, seed: int, first: int, last: int) -> Iterator[str]:
    """The result of each round, from child processes."""
    number = first
    while number < last:
        command = [sys.executable, "-m", "faults.hostile_catalogues", "--child", str(folder), "--seed", str(seed)]
        bounds = ["--first", str(number), "--rounds", str(last - number)]
        with subprocess.Popen([*command, *bounds], stdout=subprocess.PIPE, text=True, cwd=TESTS) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.startswith("begin"):
                    yield json.loads(line)
                    number += 1
        if number < last:
            ended_by = -process.returncode
            yield f"{'hang' if ended_by == signal.SIGALRM else 'crash'} in round {number}, ended by {ended_by}"
            number += 1


def run(n_rounds: int, seed: int, first: int = 0) -> Counter[str]:
    """Plays rounds in a folder that goes away; prints every bad end and counts all ends."""
    counts: Counter[str] = Counter()
    room = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="plait-", dir=room if room.is_dir() else None) as folder:
        make_indexes(Path(folder) / "sources")
        for number, result in enumerate(rounds(Path(folder), seed, first, first + n_rounds), first):
            counts[result.split(maxsplit=1)[0]] += 1
            if not result.startswith(("answered", "refused")):
                print(f"round {number} of seed {seed}: {result}", flush=True)
        _remove(Path(folder) / "work")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given.child, given.seed, given.first, given.first + given.rounds)
        return
    counts = run(given.rounds, given.seed, given.first)
    n_foreign = counts["foreign"] + counts["crash"]
    print(f"{counts.total():,} hostile catalogues: {counts['hang']} hangs, {n_foreign} foreign errors")
    print(f"{counts['refused']:,} refused, {counts['answered']:,} answered")
    sys.exit(bool(n_foreign or counts["hang"]))


if __name__ == "__main__":
    main()
