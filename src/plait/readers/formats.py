"""Which reader reads a file: by its suffix or name, or by its first bytes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import PurePath
from typing import BinaryIO

from plait.errors import SourceError
from plait.readers.code_files import GRAMMARS, OTHER_SUFFIXES, read_code
from plait.readers.given import Given, Reader
from plait.records import Document

# A new format is a function in a file of this folder, and its suffixes here. Modules are imported when they are needed.
_FORMATS = {
    "line_records:read_jsonl": ".jsonl .ndjson",
    "tables:read_tsv": ".tsv .tab",
    "tables:read_csv": ".csv",
    "tables:read_parquet": ".parquet .pq",
    "tables:read_arrow": ".arrow .feather .ipc",
    "json_files:read_json": ".json",
    "json_files:read_notebook": ".ipynb",
    "text_files:read_text": ".txt .text .log .org .tex .adoc .asciidoc .toml .yaml .yml .ini .cfg .conf .xml .srt .vtt",
    "text_files:read_markdown": ".md .markdown .mdx .qmd .rmd",
    "text_files:read_rst": ".rst .rest",
    "html_files:read_html": ".html .htm .xhtml .shtml",
    "pdf_files:read_pdf": ".pdf",
    "office_files:read_docx": ".docx .docm",
    "office_files:read_epub": ".epub",
    "mail_files:read_eml": ".eml",
    "mail_files:read_mbox": ".mbox .mbx",
    "code_files:read_python": ".py .pyi .pyw",
}
SUFFIXES = {suffix: reader for reader, suffixes in _FORMATS.items() for suffix in suffixes.split()}
CODE_SUFFIXES = frozenset([*GRAMMARS, *OTHER_SUFFIXES])
ALL_SUFFIXES = (*SUFFIXES, *sorted(CODE_SUFFIXES))
STREAMED = frozenset((".jsonl", ".ndjson", ".tsv", ".csv", ".mbox", ".mbx"))  # read record by record, of any size

# Files without text for people; they are not opened.
_BINARY = (
    ".png .jpg .jpeg .gif .bmp .ico .webp .tif .tiff .svg .svgz .psd .heic .mp3 .mp4 .m4a .wav .flac .ogg .opus "
    ".avi .mov .mkv .webm .ttf .otf .woff .woff2 .eot .zip .tar .tgz .bz2 .xz .zst .7z .rar .jar .whl .deb .rpm "
    ".iso .img .dmg .exe .dll .so .dylib .a .o .lib .obj .pyc .pyo .pyd .class .db .sqlite .sqlite3 .npy .npz .pkl "
    ".pickle .pt .pth .onnx .safetensors .h5 .hdf5 .mo .gmo .map .wasm .swf .pcap .lock .doc .xls .xlsx .ppt .pptx "
    ".odt .ods .odp "
)
BINARY_SUFFIXES = frozenset(_BINARY.split())
_SNIFFED = 8192
_CONTROL = bytes(set(range(32)) - {9, 10, 12, 13, 27})


def suffix_of(path: str) -> str:
    """.txt, .jsonl.gz and the like, in lower case; empty without one."""
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes[-2:]]
    if suffixes[-1:] == [".gz"]:
        return "".join(suffixes) if suffixes[0] in SUFFIXES or suffixes[0] in CODE_SUFFIXES else ".gz"
    return "".join(suffixes[-1:])


def reader_of(path: str | None) -> Reader | None:
    """The reader for a path; None if the file must not be opened. Standard input is JSON lines."""
    suffix = ".jsonl" if path is None else suffix_of(path)
    if suffix in BINARY_SUFFIXES:
        return None
    suffix = suffix.removesuffix(".gz")
    if suffix in SUFFIXES:
        module, function = SUFFIXES[suffix].split(":")
        return partial(_read, module, function)
    if suffix in CODE_SUFFIXES:
        return partial(read_code, suffix=suffix)
    return read_if_text


def is_streamed(path: str | None) -> bool:
    return path is None or suffix_of(path).removesuffix(".gz") in STREAMED


def _read(module: str, function: str, given: Given) -> Iterator[Document | SourceError]:
    reader: Reader = getattr(import_module(f"plait.readers.{module}"), function)
    return reader(given)


class BinaryFileError(SourceError):
    """A file that is not text, and of no format that plait reads."""


def read_if_text(given: Given) -> Iterator[Document | SourceError]:
    """A file of an unknown suffix: plain text if its first bytes are."""
    start = given.stream.read(_SNIFFED)
    if not is_text(start):
        raise BinaryFileError(f"{given.name} is a binary file of a format that plait does not read")
    stream: BinaryIO = _Rest(start, given.stream)  # type: ignore[assignment]
    return _read("text_files", "read_text", Given(stream, given.name, given.id, given.options))


def is_text(start: bytes) -> bool:
    """Whether the first bytes of a file look like text."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return len(start) > 2 and start.count(b"\0") > len(start) // 4  # UTF-16 of a script with few characters
    if b"\0" in start:
        return False
    try:
        start.decode()
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3:  # not a character that the end cuts
            n_control = len(start) - len(start.translate(None, _CONTROL))
            return n_control == 0 and sum(byte > 126 for byte in start) < len(start) / 3
    return not start.translate(None, bytes(set(range(256)) - set(_CONTROL)))[len(start) // 100 :]


class _Rest:
    """A stream whose first bytes were read already."""

    def __init__(self, start: bytes, stream: BinaryIO) -> None:
        self._start, self._stream = start, stream

    def read(self, size: int = -1) -> bytes:
        start, self._start = self._start, b""
        return start + self._stream.read(max(0, size - len(start)) if size >= 0 else -1)


DAMAGED_ARCHIVE = (EOFError, zlib.error, gzip.BadGzipFile)
