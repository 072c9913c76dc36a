"""Measures `plait sync` on mixed real files.

    python -m benchmarks.files.sync                    # with an encoder of words: the time of everything but the model
    python -m benchmarks.files.sync --model plait-small --files 200    # with a model, through the command line

Shown are a first sync, a second one in a new process, which must do nothing, and syncs after deletes, renames and
edits. Every file must be read or named with a reason. The exit code is 1 if something is not as it must be.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import plait
from benchmarks.files.corpus import make_corpus
from plait.encode.protocol import EmbeddingSpec, OnBatch
from plait.readers import ReadOptions, SourceReport, Sources

MAX_SECONDS = 2.0  # of a sync that has nothing to do
N_CHANGES = 20
CHANGED_SUFFIXES = (".txt", ".md", ".rst", ".py", ".c", ".h", ".sh", ".html", ".css")
COUNTS = re.compile(r"([\d,]+) files added, ([\d,]+) changed, ([\d,]+) moved, ([\d,]+) removed, ([\d,]+) unchanged")
PASSAGES = re.compile(r"([\d,]+) passages encoded")


class HashedWords:
    """An encoder without a model: the mean of random vectors of words. Fast, so that a sync is what is measured."""

    fingerprint = "benchmark-words"
    spec = EmbeddingSpec(dense=32)

    def encode_queries(self, texts: Sequence[str]) -> plait.Embeddings:
        return self.encode_documents(texts)

    def encode_documents(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> plait.Embeddings:
        rows = np.zeros((len(texts), 32), np.float32)
        for number, text in enumerate(texts):
            for word in text.split():
                rows[number, zlib.crc32(word.encode()) % 32] += 1
            rows[number] /= max(1.0, float(np.linalg.norm(rows[number])))
        if on_batch is not None:
            on_batch(len(texts), len(texts))
        return plait.Embeddings(dense=rows)


def run_words(folder: str, index: str) -> None:
    """One sync with the encoder of words, in this process, as the command line prints it."""
    with plait.open(index, create=True, encoder=HashedWords()) as opened:
        report = opened.sync(folder)
    counts = [len(report.added), len(report.changed), len(report.moved), len(report.removed), report.unchanged]
    print("{} files added, {} changed, {} moved, {} removed, {} unchanged;".format(*counts), end=" ")
    print(f"{report.passages} passages encoded in {report.seconds:.2f} s")
    for note in report.sources.notes():
        print(note, file=sys.stderr)


class Sync:
    """Runs a sync in a process of its own, and reads what it says."""

    def __init__(self, folder: Path, index: Path, model: str | None) -> None:
        if model is None:
            code = f"from benchmarks.files.sync import run_words; run_words({str(folder)!r}, {str(index)!r})"
            self._command = [sys.executable, "-c", code]
        else:
            main = "import sys; from plait.cli import main; sys.exit(main(sys.argv[1:]))"
            self._command = [sys.executable, "-c", main, "sync", str(folder), "--to", str(index), "--model", model]

    def run(self, title: str) -> tuple[list[int], int, float, str]:
        """The counts (added, changed, moved, removed, unchanged), the passages, the seconds and the notes."""
        start, cpu_before = time.perf_counter(), _cpu_seconds()
        done = subprocess.run(self._command, capture_output=True, text=True, check=False)
        seconds, cpu = time.perf_counter() - start, _cpu_seconds() - cpu_before
        counts, passages = COUNTS.search(done.stdout), PASSAGES.search(done.stdout)
        if counts is None or passages is None:
            sys.exit(f"{title}: {done.stdout}{done.stderr}")
        numbers = [int(number.replace(",", "")) for number in counts.groups()]
        print(f"{title:14} {seconds:8.2f} s ({cpu:.2f} s of CPU)  {done.stdout.split(': ')[-1].strip()}")
        return numbers, int(passages.group(1).replace(",", "")), seconds, done.stderr


def _cpu_seconds() -> float:
    """Of the processes that have ended: on a busy machine it says more than the time of day."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(claim: str, holds: bool, failed: list[str]) -> None:
    print(f"  {'yes' if holds else 'NO '}  {claim}")
    if not holds:
        failed.append(claim)


def measure(folder: Path, index: Path, n_files: int, model: str | None) -> list[str]:
    failed: list[str] = []
    sync = Sync(folder, index, model)
    first, n_passages, seconds, notes = sync.run("first sync")
    print(notes.rstrip())
    skipped = re.search(r"skipped ([\d,]+) files", notes)
    errors = re.search(r"^([\d,]+) files or records", notes, re.M)
    n_named = sum(int(match.group(1).replace(",", "")) for match in (skipped, errors) if match)
    check(
        f"{n_files:,} files: {first[0]:,} read, {n_named:,} named with a reason", first[0] + n_named == n_files, failed
    )
    runs = [sync.run("second sync") for _ in range(3)]  # other work on the machine only adds: the fastest counts
    nothing = all(counts[:4] == [0, 0, 0, 0] and encoded == 0 for counts, encoded, _, _ in runs)
    seconds = min(seconds for _, _, seconds, _ in runs)
    check(f"a second sync does nothing, in less than {MAX_SECONDS} s", nothing and seconds < MAX_SECONDS, failed)
    files = _changeable(folder, index, model)
    n_changes = min(N_CHANGES, len(files) // 3)
    check("there are files to change", n_changes > 0, failed)
    deleted, renamed, edited = (files[number * n_changes : (number + 1) * n_changes] for number in range(3))
    for path in deleted:
        path.unlink()
    removed, encoded, _, _ = sync.run("after deletes")
    check(f"{len(deleted)} deletes are followed", removed[3] == len(deleted) and encoded == 0, failed)
    (folder / "renamed").mkdir()
    for number, path in enumerate(renamed):
        path.rename(folder / "renamed" / f"{number}-{path.name}")
    moved, encoded, _, _ = sync.run("after renames")
    check(
        f"{len(renamed)} renames are followed, and nothing is encoded",
        moved[2] == len(renamed) and encoded == 0,
        failed,
    )
    for path in edited:
        path.write_bytes(path.read_bytes() + b"\nA new last line.\n")
    changed, encoded, _, _ = sync.run("after edits")
    check(f"{len(edited)} edits are followed, and little is encoded", changed[1] == len(edited) and encoded > 0, failed)
    last, _, _, _ = sync.run("at the end")
    check("a last sync does nothing", last[:4] == [0, 0, 0, 0], failed)
    check(f"the index has the documents of {last[4]:,} files and no others", _equals(folder, index, model), failed)
    print(f"{n_passages:,} passages of {first[0]:,} files")
    return failed


def _changeable(folder: Path, index: Path, model: str | None) -> list[Path]:
    """Text files of the index with content of their own, by name: a copy may be taken for the file that was moved."""
    by_content = {
        path.read_bytes(): path
        for relative, _ in sorted(_stored(index, model))
        if (path := folder / relative).suffix in CHANGED_SUFFIXES
    }
    return sorted(by_content.values(), key=lambda path: path.name)


def _stored(index: Path, model: str | None) -> set[tuple[str, int]]:
    """Path and size of the files that the index has."""
    options: dict[str, Any] = {"model": model} if model is not None else {"encoder": HashedWords()}
    with plait.open(index, read_only=True, **options) as opened:
        return {(document.origin.path, document.origin.size) for document in opened if document.origin is not None}


def _equals(folder: Path, index: Path, model: str | None) -> bool:
    """Whether the files of the index's documents are files of the folder, each with its size."""
    sources = Sources([folder], ReadOptions())
    sizes = {file.path: file.size for file in sources.files(SourceReport())}
    return all(sizes.get(str(folder.resolve() / path)) == size for path, size in _stored(index, model))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--max-bytes", type=int, default=20_000, help="of a file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="sync with a model, through the command line; without it, an encoder of words")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, index = Path(temporary, "files"), Path(temporary, "index")
        counts = make_corpus(folder, options.files, seed=options.seed, max_bytes=options.max_bytes)
        n_files, n_bytes = (
            sum(counts.values()),
            sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        )
        formats = ", ".join(f"{suffix or 'no suffix'} {count}" for suffix, count in sorted(counts.items()))
        print(f"{n_files:,} files, {n_bytes / 1e6:.1f} MB: {formats}")
        failed = measure(folder, index, n_files, options.model)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
