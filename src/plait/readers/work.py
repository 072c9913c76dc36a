"""How much work files are: the characters that they are expected to give.

Encoding takes nearly all the time, and its time grows with the text, not with files or their bytes: a PDF of a megabyte
may have ten kilobytes of text, a compressed one five megabytes. Characters per byte are known roughly for each format,
and learnt from the files that were read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from plait.readers.formats import BINARY_SUFFIXES, suffix_of
from plait.readers.walk import SourceFile
from plait.records import Document

# Characters per byte before any file was read.
_EXPECTED = {".pdf": 0.1, ".docx": 0.3, ".epub": 1.5, ".html": 0.4, ".htm": 0.4, ".ipynb": 0.3, ".parquet": 2.0}
_COMPRESSED = 3.5
_WEIGHT = 200_000  # bytes after which what was learnt counts as much as what was expected


class WorkLeft:
    """Work of files that are read in turn: done, and left."""

    def __init__(self, files: Iterable[SourceFile] = ()) -> None:
        self._bytes_left: dict[str, int] = defaultdict(int)
        self._bytes_read: dict[str, int] = defaultdict(int)
        self._characters: dict[str, int] = defaultdict(int)  # of the files that were read whole
        self._in_file = 0  # characters of the file that is being read
        self._read = 0  # characters of all documents
        for file in files:
            self.add(file)

    def add(self, file: SourceFile) -> None:
        self._bytes_left[suffix_of(file.relative)] += file.size

    def read(self, document: Document) -> None:
        """A document of the file whose turn it is was read."""
        n_characters = len(document.title) + len(document.text)
        self._in_file += n_characters
        self._read += n_characters

    def finish(self, file: SourceFile) -> None:
        """The file was read to its end."""
        suffix = suffix_of(file.relative)
        self._bytes_left[suffix] = max(0, self._bytes_left[suffix] - file.size)
        self._bytes_read[suffix] += file.size
        self._characters[suffix] += self._in_file
        self._in_file = 0

    def left(self, encoded: int) -> float:
        """The work that is left: what was read and not encoded, and what is expected of the other files."""
        to_read = sum(n_bytes * self._per_byte(suffix) for suffix, n_bytes in self._bytes_left.items())
        return max(0.0, self._read - encoded) + max(0.0, to_read - self._in_file)

    def _per_byte(self, suffix: str) -> float:
        expected = 0.0 if suffix in BINARY_SUFFIXES else _EXPECTED.get(suffix, 1.0)
        if suffix.endswith(".gz"):
            expected = _COMPRESSED
        return (self._characters[suffix] + _WEIGHT * expected) / (self._bytes_read[suffix] + _WEIGHT)
