"""Long ingests: resumed after a kill, and in little memory."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plait
from encoders import WordEncoder
from plait.encode.chunking import WholeDocument
from plait.ingest import add_documents
from plait.storage.check import check

INGEST = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import plait
from encoders import WordEncoder
def documents():
    for number in range(100):
        if number == 57:
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"id": f"d{number}", "text": f"word{number} and others"}
plait.open(sys.argv[1], create=True, encoder=WordEncoder()).add(documents(), commit_every=10)
"""


def test_an_ingest_resumes_after_a_kill_without_encoding_committed_documents_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INGEST, str(tmp_path / "index"), str(Path(__file__).parent)]
    assert subprocess.run(command, check=False, timeout=120).returncode == -9
    encoder = WordEncoder()
    with plait.open(tmp_path / "index", encoder=encoder) as index:
        assert len(index) == 50
        report = index.add({"id": f"d{number}", "text": f"word{number} and others"} for number in range(100))
        assert (report.added, report.unchanged, encoder.n_encoded, len(index)) == (50, 50, 50, 100)
    assert check(tmp_path / "index").problems == []


def test_the_caller_may_choose_the_chunker(tmp_path: Path) -> None:
    document = {"id": "long", "text": "word " * 200}
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder(window=50)) as index:
        assert index.add([document]).passages > 1
        index.delete(["long"])
        assert index.add([document], chunker=WholeDocument()).passages == 1


class ConstantEncoder:
    """Gives every text the same embeddings, so that the memory measured is that of adding."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._words, name)

    def __init__(self) -> None:
        self._words = WordEncoder(dim=8, window=10_000)

    def encode_documents(self, texts: list[str], **_: Any) -> Any:
        return self._words.encode_documents(["word"] * len(texts))


def test_memory_does_not_grow_with_the_number_of_documents(tmp_path: Path) -> None:
    def documents(n_documents: int) -> Iterator[dict[str, str]]:
        for number in range(n_documents):
            yield {"id": f"d{number}", "text": f"{number} " * 5000}

    def peak(n_documents: int) -> int:
        encoder: Any = ConstantEncoder()
        with plait.open(tmp_path / str(n_documents), create=True, encoder=encoder) as index:
            tracemalloc.start()
            try:
                with index._store.writer() as writer:
                    add_documents(writer, encoder, documents(n_documents), commit_every=10, merge=False)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    peak(20)  # fills caches
    assert peak(400) < 1.5 * peak(40)
