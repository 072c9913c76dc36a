"""Python runs this when a process of the server starts, because the test puts this folder on PYTHONPATH. It ends the
writer at a commit, as a crash would, if the file in CRASH_FILE says so: `catalogue-before`, `catalogue-after` or
`state-after`. The file is removed first, so that it happens once."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

_connect = sqlite3.connect


def _crash_if_asked(database: str, when: str) -> None:
    file = Path(os.environ["CRASH_FILE"])
    try:
        wanted = file.read_text(encoding="utf-8")
        if wanted != f"{Path(database).stem}-{when}":
            return
        file.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _crashing(factory: type[sqlite3.Connection], database: str) -> type[sqlite3.Connection]:
    class Connection(factory):  # type: ignore[misc, valid-type]  # the class that the caller asked for
        def execute(self, sql: str, *arguments: Any) -> Any:
            if sql != "COMMIT":
                return super().execute(sql, *arguments)
            _crash_if_asked(database, "before")
            cursor = super().execute(sql, *arguments)
            _crash_if_asked(database, "after")
            return cursor

    return Connection


def _crashing_connect(database: Any, *arguments: Any, **keywords: Any) -> Any:
    path = str(database).removeprefix("file:").partition("?")[0]
    keywords["factory"] = _crashing(keywords.get("factory", sqlite3.Connection), path)
    return _connect(database, *arguments, **keywords)


if "writer" in sys.orig_argv:
    sqlite3.connect = _crashing_connect
