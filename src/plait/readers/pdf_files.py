"""PDF, with PDFium: page by page; bookmarks are headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from threading import Lock
from typing import Any

from plait.errors import SourceError
from plait.readers.given import Given, SectionedText, missing, one_document
from plait.records import Document

_pdfium = Lock()  # PDFium is not thread-safe
_PASSWORD = re.compile("password", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\ud800-\udfff]")
_HYPHEN = re.compile(r"[\ufffe\xad\x02]\s*")  # how PDFium marks a word that a line end breaks
MAX_PAGES = 20_000
MAX_BOOKMARKS = 5_000


def read_pdf(given: Given) -> Iterator[Document]:
    """One document; the location is the page."""
    try:
        import pypdfium2
    except ImportError:
        raise missing(given, "PDF", "pypdfium2") from None
    raw = given.read()
    with _pdfium:
        try:
            pdf = pypdfium2.PdfDocument(raw)
        except pypdfium2.PdfiumError as error:
            if _PASSWORD.search(str(error)):
                raise SourceError(f"{given.name} is protected by a password; save it without one") from None
            raise SourceError(f"{given.name} is damaged, or not a PDF: {error}") from None
        try:
            text, title = _read(pdf, given.name, pypdfium2.PdfiumError)
            n_pages = len(pdf)
        finally:
            pdf.close()
    if not text.text.strip():
        raise SourceError(
            f"{given.name} has no text (pages: {n_pages}); if it is scanned, recognize the text first (ocrmypdf)"
        )
    yield from one_document(given, text.text, title, {"pages": n_pages}, text.finished())


def _read(pdf: Any, name: str, failure: type[Exception]) -> tuple[SectionedText, str]:
    if len(pdf) > MAX_PAGES:
        raise SourceError(f"{name} has {len(pdf):,} pages, more than {MAX_PAGES:,}; split it")
    bookmarks = _bookmarks(pdf, failure)
    text = SectionedText()
    for number in range(len(pdf)):
        content = _page_text(pdf, number, failure)
        start = len(text) + (2 if len(text) else 0)
        text.begin(f"page {number + 1}")
        position = 0
        for level, heading in bookmarks.get(number, []):
            position = max(position, content.find(heading, position))
            section = text.sections[-1]._replace(start=start + position, label=f"page {number + 1}")
            text.sections.append(section._replace(level=level, heading=heading))
        text.add(content)
    title = pdf.get_metadata_dict().get("Title", "")
    return text, "" if title.lower() in ("untitled", "") else title


def _page_text(pdf: Any, number: int, failure: type[Exception]) -> str:
    """The text of a page; none if the page is damaged, so that the others can be read."""
    try:
        page = pdf[number]
        textpage = page.get_textpage()
        content: str = textpage.get_text_range()
        textpage.close()
        page.close()
    except failure:
        return ""
    content = _HYPHEN.sub("", content.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROL.sub(" ", content).strip()


def _bookmarks(pdf: Any, failure: type[Exception]) -> dict[int, list[tuple[int, str]]]:
    """(level, title) of the bookmarks of each page."""
    bookmarks: dict[int, list[tuple[int, str]]] = {}
    try:
        for number, bookmark in enumerate(pdf.get_toc(max_depth=6)):
            if number >= MAX_BOOKMARKS:
                break
            target = bookmark.get_dest()
            page = None if target is None else target.get_index()
            title = " ".join(_CONTROL.sub(" ", bookmark.get_title()).split())
            if page is not None and title:
                bookmarks.setdefault(page, []).append((bookmark.level + 1, title))
    except failure:
        pass  # damaged bookmarks: the pages are read without them
    return bookmarks
