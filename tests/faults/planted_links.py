"""Plants links and FIFOs in index folders and in the paths of backups and rescue files, then uses them. Each use must
end with an error of plait, soon, and leave the files of others as they were.

    python -m faults.planted_links
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS = 30  # for one use; a FIFO that is opened would wait for ever

# Where something is planted, and the command that comes across it. An asterisk marks the place of a folder.
PLACES = {
    "catalogue.sqlite": "open",
    "catalogue.sqlite-wal": "open",
    "lock": "add",
    "segments*": "add",
    "segments/000001*": "search",
    "segments/000001/rows.plait": "search",
    "segments/000900*": "add",
    "segments/000900/rows.plait": "add",
    "cur*": "drafts",
    "../.copy.part*": "backup",
    "../rescue.jsonl": "repair",
    "attachments*": "add",
}
KINDS = ("link", "FIFO")

USE = """
import signal, sys, plait
from pathlib import Path
from plait.errors import PlaitError
from plait.cur.draft import drafted_documents
from plait.storage.backup import backup
from plait.storage.repair import repair

for index, command in zip(map(Path, sys.argv[2::2]), sys.argv[3::2]):
    signal.alarm(int(sys.argv[1]))  # ends the process
    message = ""
    try:
        if command == "backup":
            backup(index, index.parent / "copy")
        elif command == "drafts":
            drafted_documents(index)
        elif command == "repair":
            repair(index, rescue=index.parent / "rescue.jsonl")
        else:
            with plait.open(index) as opened:
                if command == "add":
                    opened.delete(["d1"])
                    opened.compact()
                elif command == "search":
                    len(opened)
    except PlaitError as error:
        message = f"{type(error).__name__}: {error}"
    except Exception:
        pass
    print(message, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one planted entry."""

    what: str
    message: str  # of plait's error; empty if there was none, or another end
    n_changed: int  # files and folders of others that were changed, added or removed

    @property
    def refused(self) -> bool:
        return bool(self.message)


def make_index(path: Path) -> None:
    """A small index with two segments."""
    import numpy as np

    import plait
    from plait.embeddings import Embeddings
    from plait.encode.protocol import EmbeddingSpec

    with plait.open(path, create=True, spec=EmbeddingSpec(dense=4), n_threads=1) as index:
        for first in (0, 3):
            documents = [{"id": f"d{number}", "text": f"text {number}"} for number in range(first, first + 3)]
            index.add_embeddings(documents, Embeddings(dense=np.eye(3, 4, dtype=np.float32)))


def make_foreign(folder: Path) -> None:
    """Files of somebody else, under names that plait uses as well."""
    for name in ("000001", "000900", "2024001"):
        (folder / name).mkdir(parents=True)
        for file in ("rows.plait", "dense.plait", "letter.txt"):
            (folder / name / file).write_text(f"{file} of somebody else")
    (folder / "letter.txt").write_text("a letter")


def digest(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every entry below a folder, with its mode, its time of change and its content."""
    entries = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        state = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        entries[str(path)] = (state.st_mode, state.st_mtime_ns, content)
    return entries


def plant(index: Path, place: str, kind: str, foreign: Path) -> None:
    """Puts a link to a foreign file or folder, or a FIFO, in the place of an entry."""
    path = index / place.removesuffix("*")
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to(foreign / ("." if place.endswith("*") else "letter.txt"))


def outcomes(folder: Path, places: Sequence[str] = tuple(PLACES)) -> list[Outcome]:
    """Plants each kind of entry in each place, and uses the indexes in another process."""
    make_index(folder / "made" / "index")
    planted = [(folder / f"{number}-{kind}", place, kind) for number, place in enumerate(places) for kind in KINDS]
    for work, place, kind in planted:
        shutil.copytree(folder / "made", work)
        make_foreign(work / "foreign")
        if PLACES[place] == "repair":  # it writes the file only if documents are lost
            damaged = work / "index" / "segments" / "000001" / "dense.plait"
            damaged.write_bytes(damaged.read_bytes()[:-9])
        plant(work / "index", place, kind, work / "foreign")
    before = [digest(work / "foreign") for work, *_ in planted]
    messages = use([(work / "index", PLACES[place]) for work, place, _ in planted])
    results = []
    for (work, place, kind), old, message in zip(planted, before, messages, strict=True):
        new = digest(work / "foreign")
        changed = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
        results.append(Outcome(f"{place.removesuffix('*')} as a {kind}", message, len(changed)))
    return results


def use(uses: Sequence[tuple[Path, str]]) -> list[str]:
    """The message of plait's error for each use; empty if there was none, or if an earlier use never ended."""
    arguments = [str(part) for pair in uses for part in pair]
    done = subprocess.run(
        [sys.executable, "-c", USE, str(SECONDS), *arguments], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    return lines + [""] * (len(uses) - len(lines))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        results = outcomes(Path(folder))
    for result in results:
        if not result.refused or result.n_changed or "-v" in sys.argv:
            print(f"{result.what}: {result.message or 'NOT REFUSED'}, {result.n_changed} foreign entries changed")
    n_refused, n_changed = sum(result.refused for result in results), sum(result.n_changed for result in results)
    changed = "0 foreign bytes changed" if not n_changed else f"{n_changed} foreign entries changed"
    print(f"{len(results)} planted links and FIFOs: {n_refused} refused, {changed}")
    sys.exit(n_refused < len(results) or n_changed > 0)


if __name__ == "__main__":
    main()
