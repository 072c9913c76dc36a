"""Zip archives and XML from strangers: sizes are limited, and entities are refused.

A zip bomb unpacks to far more than its size; an XML bomb does so by entities, and external entities read other files.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from xml.etree import ElementTree
from xml.parsers import expat

from plait.errors import SourceError
from plait.readers.given import Given

MAX_PART = 200_000_000  # bytes of one file of an archive, unpacked
MAX_PARTS = 400_000_000  # bytes of all files that are read
MAX_RATIO = 1000  # unpacked to packed; text in a document has less than 100
MIN_CHECKED = 10_000_000  # bytes: smaller files may have any ratio
MAX_XML_DEPTH = 500


class Archive:
    """The files of a zip archive."""

    def __init__(self, given: Given) -> None:
        self._name, self._n_read = given.name, 0
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(given.read()))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise SourceError(f"{given.name} is damaged, or not of its format: {error}") from None

    def __contains__(self, part: str) -> bool:
        return part in self._zip.NameToInfo

    def read(self, part: str) -> bytes:
        try:
            info = self._zip.getinfo(part)
        except KeyError:
            raise SourceError(f"{self._name} has no part {part}; it is damaged, or not of its format") from None
        if info.flag_bits & 1:
            raise SourceError(f"{self._name} is protected by a password; save it without one")
        self._n_read += info.file_size
        is_bomb = info.file_size > MIN_CHECKED and info.file_size > MAX_RATIO * max(1, info.compress_size)
        if is_bomb or info.file_size > MAX_PART or self._n_read > MAX_PARTS:
            raise SourceError(
                f"{self._name}: its part {part} unpacks to {info.file_size:,} bytes, which is more than plait reads"
            )
        try:
            with self._zip.open(info) as file:
                raw = file.read(info.file_size + 1)  # zipfile compares the checksum at the end
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
            raise SourceError(f"{self._name} is damaged: its part {part} cannot be unpacked ({error})") from None
        return raw

    def xml(self, part: str) -> ElementTree.Element:
        return parse_xml(self.read(part), f"{self._name}, {part}")


def parse_xml(raw: bytes, name: str) -> ElementTree.Element:
    """The root element of a document without entity declarations; names are {namespace}name."""
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    depth = 0

    def refuse(*_: object) -> None:
        raise SourceError(f"{name} declares XML entities, which can read other files or fill memory; it is not read")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_XML_DEPTH:
            raise SourceError(f"{name} is nested more than {MAX_XML_DEPTH} deep")
        builder.start(_qualified(tag), {_qualified(key): value for key, value in attributes.items()})

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_qualified(tag))

    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = _never
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, builder.data
    try:
        parser.Parse(raw, True)
        return builder.close()
    except (expat.ExpatError, AssertionError, ValueError) as error:
        raise SourceError(f"{name} is not well-formed XML: {error}") from None


def _never(*_: object) -> int:
    return 0


def _qualified(tag: str) -> str:
    return f"{{{tag}" if "}" in tag else tag
