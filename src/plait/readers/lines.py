"""The bytes and lines of a file, with errors that name the file, the line and the byte."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from plait.errors import SourceError

MAX_LINE = 64 * 2**20  # bytes; a file without line ends must not fill memory
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# The mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


class CountsBytes(Protocol):
    bytes_read: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line, without its line end."""

    number: int  # from 1
    text: str


class _CountingFile(io.RawIOBase):
    """Counts the bytes that are read."""

    def __init__(self, raw: BinaryIO, count: CountsBytes) -> None:
        self._raw, self._count = raw, count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self._count.bytes_read += len(data)
        return len(data)


@contextmanager
def open_source(path: Path | None, count: CountsBytes | None = None) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed if it ends in .gz; without a path, of standard input."""
    with ExitStack() as open_files:
        stream: BinaryIO = sys.stdin.buffer if path is None else open_files.enter_context(path.open("rb"))
        if count is not None:
            stream = io.BufferedReader(_CountingFile(stream, count), 2**17)
        if path is not None and path.suffix.lower() == ".gz":
            stream = open_files.enter_context(gzip.GzipFile(fileobj=stream))  # type: ignore[assignment]
        yield stream


def read_lines(stream: BinaryIO, name: str) -> Iterator[Line | SourceError]:
    """The lines that are not blank; a line that is not UTF-8 gives an error instead."""
    offset, number = 0, 0
    while raw := stream.readline(MAX_LINE + 1):
        number += 1
        if len(raw) > MAX_LINE:
            raise SourceError(f"{name}, line {number} is longer than {MAX_LINE:,} bytes; put each record on a line")
        start, offset = offset, offset + len(raw)
        try:
            text = decode(raw, name, offset=start, line=number).rstrip("\r\n")
        except SourceError as error:
            yield error
            continue
        if text and not text.isspace():
            yield Line(number, text)


def decode_text(raw: bytes, name: str) -> str:
    """The text of a whole file, with line ends as \\n: UTF-8, or what its byte-order mark says, or Windows-1252.

    Bytes that are not UTF-8 and have no mark are most often of Windows-1252, which contains Latin-1.
    """
    encoding = next((encoding for mark, encoding in _MARKS if raw.startswith(mark)), "utf-8")
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise SourceError(f"{name} begins as {encoding}, but byte {error.start} is not; it is damaged") from None
        text = "" if b"\0" in raw else raw.decode("cp1252", errors="replace")
    if "\0" in text or (raw and not text and b"\0" in raw):
        raise SourceError(f"{name} has a NUL character at byte {raw.find(0)}: it is a binary file, not text")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def decode(raw: bytes, name: str, *, offset: int = 0, line: int = 1) -> str:
    """Decodes UTF-8 that begins at this byte and line of a file; SourceError says where it is not UTF-8."""
    if offset == 0:
        if raw.startswith(_UTF16):
            raise SourceError(f"{name} looks like UTF-16; plait reads UTF-8 (iconv -f utf-16 -t utf-8 converts it)")
        if raw.startswith(_BOM):
            raw, offset = raw[len(_BOM) :], len(_BOM)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line += raw.count(b"\n", 0, error.start)
        raise SourceError(
            f"{name}, line {line}: byte {offset + error.start} (0x{raw[error.start]:02x}) is not UTF-8; convert the "
            f"file, for instance with iconv -f latin1 -t utf-8"
        ) from None
