"""What a reader is given, and what readers share: the bytes of a file, limited, and a text that grows by sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from plait.errors import ConfigError, DocumentError, SourceError
from plait.readers.lines import decode_text
from plait.records import Document, Section
from plait.storage.validate import check_document

MAX_FILE = 100_000_000  # bytes of a file that is read whole
INSTALL = "pip install 'plait[files]'"


class UnreadableError(SourceError):
    """A file that plait cannot read for a reason outside the file: a library is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How files are chosen and read."""

    text_field: str | None = None  # of JSON, CSV and Parquet: "text" by default
    id_field: str | None = None  # "id" or "_id" by default
    title_field: str | None = None  # "title" by default
    include: tuple[str, ...] = ()  # globs; other files of folders are left out
    exclude: tuple[str, ...] = ()  # globs of files and folders that are left out
    hidden: bool = False  # read files and folders whose names begin with a dot
    gitignore: bool = True  # leave out what .gitignore files name
    follow_links: bool = False  # read links to files and folders
    max_bytes: int = MAX_FILE  # larger files are not read, unless they have a record on each line

    def __post_init__(self) -> None:
        if type(self.max_bytes) is not int or self.max_bytes < 1:
            raise ConfigError(f"max_bytes is {self.max_bytes!r}; it must be a whole number of at least 1")
        for name in ("include", "exclude"):
            globs = getattr(self, name)
            if isinstance(globs, str) or not all(isinstance(glob, str) and glob for glob in globs):
                raise ConfigError(f"{name} must be a sequence of globs, such as ['*.md']; got {globs!r:.80}")


@dataclass(frozen=True, slots=True)
class Given:
    """An open file."""

    stream: BinaryIO
    name: str  # for messages
    id: str  # for a document that is the whole file; documents inside it have this id, # and a number
    options: ReadOptions = field(default_factory=ReadOptions)

    def read(self) -> bytes:
        """The whole content; SourceError if it is larger than the limit."""
        raw = self.stream.read(self.options.max_bytes + 1)
        if len(raw) > self.options.max_bytes:
            raise SourceError(
                f"{self.name} is longer than {self.options.max_bytes:,} bytes; split it, or raise --max-bytes"
            )
        return raw

    def read_text(self) -> str:
        """The whole content as text, with line ends as \\n."""
        return decode_text(self.read(), self.name)


# Yields the documents of an open file, and a SourceError instead of a document that cannot be read.
Reader = Callable[[Given], Iterator[Document | SourceError]]


class SectionedText:
    """A text that grows by blocks, with its sections."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self.sections: list[Section] = []

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def __len__(self) -> int:
        return self._length

    def add(self, block: str, separator: str = "\n\n") -> None:
        """Adds a block after the separator; a blank block is left out."""
        if block.strip():
            if self._length:
                self._append(separator)
            self._append(block)

    def begin(self, label: str = "", level: int = 0, heading: str = "", separator: str = "\n\n") -> None:
        """Begins a section at the next block, which is added with the same separator."""
        start = self._length + (len(separator) if self._length else 0)
        self.sections.append(Section(start, label, level, heading))

    def finished(self) -> tuple[Section, ...]:
        """The sections; those after the last block have no text and are left out."""
        return tuple(section for section in self.sections if section.start < self._length)

    def _append(self, part: str) -> None:
        self._parts.append(part)
        self._length += len(part)


def checked(document: Document, name: str) -> Iterator[Document]:
    """The document if it can be stored, nothing if it is blank; SourceError, which names the file, otherwise."""
    if not document.text.strip() and not document.title.strip():
        return
    try:
        check_document(document)
    except DocumentError as error:
        raise SourceError(f"{name}: {error}") from None
    yield document


def one_document(
    given: Given,
    text: str,
    title: str = "",
    metadata: Mapping[str, Any] | None = None,
    sections: tuple[Section, ...] = (),
) -> Iterator[Document]:
    """The file as one document; nothing if it is blank."""
    title = " ".join(title.replace("\x00", " ").split())
    yield from checked(Document(given.id, text, title, metadata or {}, sections), given.name)


def missing(given: Given, what: str, library: str) -> UnreadableError:
    return UnreadableError(f"{given.name}: {what} needs the library {library}; {INSTALL}")
