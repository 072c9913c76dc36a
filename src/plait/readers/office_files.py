"""Readers for DOCX and EPUB: zip archives with XML, which the standard library reads."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree import ElementTree

from plait.errors import SourceError
from plait.readers.archives import Archive
from plait.readers.given import Given, SectionedText, one_document
from plait.readers.html_files import HtmlText, decode_html
from plait.records import Document

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_STRICT = "{http://purl.oclc.org/ooxml/wordprocessingml/main}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_HEADING = re.compile(r"heading\s*([1-9])", re.IGNORECASE)
_OLE = b"\xd0\xcf\x11\xe0"  # the container of protected DOCX files, and of .doc


def read_docx(given: Given) -> Iterator[Document]:
    """A Word document: headings by style; the location is the page where Word saved page breaks, else the paragraph."""
    start = given.stream.read(4)
    if start == _OLE:
        raise SourceError(f"{given.name} is protected by a password, or a .doc file; save it as .docx without one")
    archive = Archive(_with_start(given, start))
    body = archive.xml("word/document.xml")
    levels = _heading_styles(archive)
    text, page, has_pages = SectionedText(), 1, False
    title = _core_title(archive)
    for number, paragraph in enumerate(_paragraphs(body), 1):
        content, n_breaks = _content(paragraph)
        page, has_pages = page + n_breaks, has_pages or n_breaks > 0
        level = _level(paragraph, levels)
        if content.strip():
            heading = " ".join(content.split()) if level else ""
            text.begin(f"page {page}|paragraph {number}", level, heading)
            title = title or heading
        text.add(content)
    keep = 0 if has_pages else 1
    sections = tuple(section._replace(label=section.label.split("|")[keep]) for section in text.finished())
    yield from one_document(given, text.text, title, {}, sections)


def _with_start(given: Given, start: bytes) -> Given:
    return Given(io.BytesIO(start + given.read()), given.name, given.id, given.options)


def _name(element: ElementTree.Element) -> str:
    """The name of an element of WordprocessingML, whichever namespace it has; empty for other elements."""
    for namespace in (_W, _STRICT):
        if element.tag.startswith(namespace):
            return element.tag.removeprefix(namespace)
    return ""


def _value(element: ElementTree.Element | None) -> str:
    if element is None:
        return ""
    return next((value for key, value in element.attrib.items() if key.endswith("}val")), "")


def _child(element: ElementTree.Element | None, name: str) -> ElementTree.Element | None:
    return None if element is None else next((child for child in element if _name(child) == name), None)


def _heading_styles(archive: Archive) -> dict[str, int]:
    """The level of each style that is a heading. Ids of styles are translated; their names are not."""
    if "word/styles.xml" not in archive:
        return {}
    levels = {}
    for style in archive.xml("word/styles.xml"):
        id = next((value for key, value in style.attrib.items() if key.endswith("}styleId")), "")
        name = _value(_child(style, "name"))
        if match := _HEADING.fullmatch(name):
            levels[id] = int(match.group(1))
        elif name.lower() == "title":
            levels[id] = 1
    return levels


def _level(paragraph: ElementTree.Element, levels: dict[str, int]) -> int:
    properties = _child(paragraph, "pPr")
    style = _value(_child(properties, "pStyle"))
    outline = _value(_child(properties, "outlineLvl"))
    if outline.isdecimal() and int(outline) < 9:
        return int(outline) + 1
    match = _HEADING.fullmatch(style)
    return levels.get(style, int(match.group(1)) if match else 0)


def _paragraphs(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Paragraphs, and rows of tables; a row is one block."""
    for child in element:
        if _name(child) in ("p", "tr"):
            yield child
        elif _name(child) != "del":  # deleted in tracked changes
            yield from _paragraphs(child)


def _content(element: ElementTree.Element) -> tuple[str, int]:
    """The text of a paragraph or row, and the number of page breaks in it."""
    parts: list[str] = []
    n_breaks = 0
    cells = 0

    def visit(node: ElementTree.Element) -> None:
        nonlocal n_breaks, cells
        name = _name(node)
        if name == "t":
            parts.append(node.text or "")
        elif name in ("tab", "br", "cr"):
            is_page = any(key.endswith("}type") and value == "page" for key, value in node.attrib.items())
            n_breaks += is_page
            parts.append("\t" if name == "tab" else "\n")
        elif name == "lastRenderedPageBreak":
            n_breaks += 1
        elif name == "tc":
            parts.append(" | " if cells else "")
            cells += 1
        if name not in ("del", "instrText", "pPr", "rPr"):
            for child in node:
                visit(child)
            if name == "p" and node is not element:
                parts.append(" ")

    visit(element)
    content = "".join(parts).strip("\n")
    return (" ".join(content.split()) if cells else content), n_breaks


def _core_title(archive: Archive) -> str:
    if "docProps/core.xml" not in archive:
        return ""
    return (archive.xml("docProps/core.xml").findtext(f"{_DC}title") or "").strip()


def read_epub(given: Given) -> Iterator[Document]:
    """A book: one document; the location is the chapter, counted in the order of reading."""
    archive = Archive(given)
    container = archive.xml("META-INF/container.xml")
    package_path = next((e.attrib.get("full-path", "") for e in container.iter() if e.tag.endswith("}rootfile")), "")
    if not package_path:
        raise SourceError(f"{given.name} names no package file; it is damaged, or not an EPUB")
    package = archive.xml(package_path)
    title = next((e.text or "" for e in package.iter() if e.tag == f"{_DC}title"), "").strip()
    creators = [(e.text or "").strip() for e in package.iter() if e.tag == f"{_DC}creator"]
    text = SectionedText()
    n_chapters = n_unreadable = 0
    for path in _spine(package, package_path):
        if path not in archive:
            n_unreadable += 1
            continue
        n_chapters += 1
        page = HtmlText(decode_html(archive.read(path), f"{given.name}, {path}"), f"chapter {n_chapters}")
        start = len(text) + (2 if len(text) else 0)
        text.begin(f"chapter {n_chapters}")
        text.sections += [section._replace(start=start + section.start) for section in page.sections]
        text.add(page.text)
    if "META-INF/encryption.xml" in archive and not text.text.strip():
        raise SourceError(f"{given.name} is encrypted (DRM); its text cannot be read")
    if not n_chapters:
        raise SourceError(f"{given.name} has no chapter that can be read ({n_unreadable} are missing)")
    metadata = {"author": ", ".join(creators)} if any(creators) else {}
    yield from one_document(given, text.text, title, metadata, text.finished())


def _spine(package: ElementTree.Element, package_path: str) -> list[str]:
    """The paths of the chapters within the archive, in the order of reading."""
    folder = posixpath.dirname(package_path)
    items = {e.attrib.get("id"): e.attrib.get("href", "") for e in package.iter() if e.tag.endswith("}item")}
    ids = [e.attrib.get("idref") for e in package.iter() if e.tag.endswith("}itemref")]
    hrefs = [items[id] for id in ids if items.get(id)]
    return [posixpath.normpath(posixpath.join(folder, unquote(href.split("#")[0]))) for href in hrefs]
