"""Rankings that were made before, kept in files, so that measuring again repeats nothing that is finished. A file may
be removed at any time; what it held is then made anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

Rankings = dict[str, list[tuple[str, float]]]


def hash_of(value: object) -> str:
    """A name for what JSON can hold; equal values have equal names."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=False, sort_keys=True).encode()).hexdigest()[:32]


class Kept:
    """The rankings of one piece of work, named by all that decides them. Each batch is a line, written when it is done:
    work that is stopped goes on after its last batch."""

    def __init__(self, folder: str | Path, key: Mapping[str, object]) -> None:
        self._key = dict(key)
        self.file = Path(folder) / f"{hash_of(self._key)}.jsonl"

    def read(self) -> tuple[Rankings, float]:
        """The rankings there are, and the seconds that they took. A line that was cut short is passed over."""
        rankings: Rankings = {}
        seconds = 0.0
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, UnicodeDecodeError):
            return rankings, seconds
        for line in lines:
            try:
                batch = json.loads(line)
                found = {query: [(str(id), float(score)) for id, score in ranking] for query, ranking in batch["run"]}
                took = float(batch["seconds"])
            except (ValueError, KeyError, TypeError):
                continue  # the key, or half a line
            if not found.keys() & rankings.keys():  # two processes may have done the same
                rankings.update(found)
                seconds += took
        return rankings, seconds

    def add(self, rankings: Rankings, seconds: float) -> None:
        """Keeps a batch."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"seconds": seconds, "run": list(rankings.items())}, ensure_ascii=False)
        is_new = not self.file.exists()
        with self.file.open("a", encoding="utf-8", newline="\n") as file:
            # After a line that was cut short, this one must still begin a line of its own.
            file.write((json.dumps({"key": self._key}, ensure_ascii=False) if is_new else "") + "\n" + line + "\n")

    def forget(self) -> None:
        self.file.unlink(missing_ok=True)
