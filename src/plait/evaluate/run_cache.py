"""A cache of rankings in files, so that measuring again repeats no finished search. A file may be deleted at any time;
its rankings are then computed again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

Rankings = dict[str, list[tuple[str, float]]]


def hash_of(value: object) -> str:
    """A digest of a JSON value; equal values have equal digests."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=False, sort_keys=True).encode()).hexdigest()[:32]


class RunCache:
    """The rankings of one run, in a file named by the hash of everything that decides them.

    Each batch is one line, written when it is complete: an interrupted run resumes after its last batch.
    """

    def __init__(self, folder: str | Path, key: Mapping[str, object]) -> None:
        self._key = dict(key)
        self.file = Path(folder) / f"{hash_of(self._key)}.jsonl"

    def read(self) -> tuple[Rankings, float]:
        """The cached rankings, and the seconds that searching for them took. A truncated line is skipped."""
        rankings: Rankings = {}
        seconds = 0.0
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, UnicodeDecodeError):
            return rankings, seconds
        for line in lines:
            try:
                batch = json.loads(line)
                part = {query: [(str(id), float(score)) for id, score in ranking] for query, ranking in batch["run"]}
                part_seconds = float(batch["seconds"])
            except (ValueError, KeyError, TypeError):
                continue  # the key, or a truncated line
            if not part.keys() & rankings.keys():  # two processes may have written the same batch
                rankings.update(part)
                seconds += part_seconds
        return rankings, seconds

    def add(self, rankings: Rankings, seconds: float) -> None:
        """Appends a batch."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"seconds": seconds, "run": list(rankings.items())}, ensure_ascii=False)
        is_new = not self.file.exists()
        with self.file.open("a", encoding="utf-8", newline="\n") as file:
            # The leading newline ends a line that an interrupted process left truncated.
            file.write((json.dumps({"key": self._key}, ensure_ascii=False) if is_new else "") + "\n" + line + "\n")

    def clear(self) -> None:
        self.file.unlink(missing_ok=True)
