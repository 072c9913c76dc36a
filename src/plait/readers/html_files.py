"""HTML to text with headings.

Python's parser is enough: it never fails on broken pages, needs no library, and reading costs little beside encoding.
The location of a passage is the anchor of its heading (`#install`), or the line of the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from plait.readers.given import Given, SectionedText, one_document
from plait.readers.lines import decode_text
from plait.records import Document, Section


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Elements whose text is no text of the page, and elements that begin a new block.
_SKIPPED = _names("script style noscript template svg math head nav iframe object select button form")
_BLOCKS = _names(
    "p div section article main aside header footer ul ol dl dt dd li table tr pre blockquote figure figcaption hr "
    "body details summary address fieldset h1 h2 h3 h4 h5 h6 caption thead tbody title"
)
_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_HEADING = re.compile(r"h([1-6])")
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\n\f\r\xa0]+")
MIN_SECTION = 1000  # characters after which a block without a heading begins a section, so that its line is known


def read_html(given: Given) -> Iterator[Document]:
    """One document; the title is that of the page, or its first heading."""
    page = HtmlText(decode_html(given.read(), given.name))
    yield from one_document(given, page.text, page.title, {}, page.sections)


def decode_html(raw: bytes, name: str) -> str:
    """The page as text: UTF-8, or else by the encoding that it declares."""
    try:
        return decode_text(raw, name) if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    declared = _CHARSET.search(raw[:4096])
    try:
        return raw.decode(declared.group(1).decode("ascii") if declared else "cp1252", errors="replace")
    except LookupError:  # an encoding that Python does not know
        return raw.decode("cp1252", errors="replace")


class HtmlText(HTMLParser):
    """The text of a page, block by block."""

    def __init__(self, page: str, label: str | None = None) -> None:
        """`label` is for all sections of a page that is part of a book; None labels them by anchor or line."""
        super().__init__(convert_charrefs=True)
        self._text = SectionedText()
        self._label = label
        self._block: list[str] = []
        self._skipping: list[str] = []  # open elements whose text is left out
        self._level = 0  # of the heading that is open
        self._pre = 0  # open elements with meaningful white space
        self._anchor = ""
        self._in_title = False
        self._page_title: list[str] = []
        self._heading_title = ""
        self._last_section = 0
        self.feed(page)
        self.close()
        self._end_block()

    @property
    def text(self) -> str:
        return self._text.text

    @property
    def sections(self) -> tuple[Section, ...]:
        return self._text.finished()

    @property
    def title(self) -> str:
        return _SPACE.sub(" ", "".join(self._page_title)).strip() or self._heading_title

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and "svg" not in self._skipping:
            self._in_title = True
        elif tag in _SKIPPED:
            self._skipping.append(tag)
        if self._skipping:
            return
        anchor = next((value for name, value in attrs if name in ("id", "name") and value), "")
        if tag in _BLOCKS:
            self._end_block()
        heading = _HEADING.fullmatch(tag)
        if anchor and (heading or tag in _BLOCKS or tag in ("a", "span") or self._level):
            self._anchor = anchor
        if heading:
            self._level = int(heading.group(1))
        elif tag == "pre":
            self._pre += 1
        elif tag == "br":
            self._block.append("\n")
        elif tag in ("td", "th") and self._block:
            self._block.append(" | ")
        elif tag == "img":
            self._block.append(next((value or "" for name, value in attrs if name == "alt"), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipping:
            if tag in self._skipping:  # an element that was not closed ends with the one around it
                while self._skipping.pop() != tag:
                    pass
            elif tag in ("body", "html"):
                self._skipping.clear()
            return
        if tag in _BLOCKS:
            self._end_block()
        if tag == "pre":
            self._pre = max(0, self._pre - 1)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._page_title.append(data)
        elif not self._skipping:
            self._block.append(data if self._pre else _SPACE.sub(" ", data))

    def _end_block(self) -> None:
        block = "".join(self._block).replace("\0", " ")
        block = block.strip("\n") if self._pre else "\n".join(line.strip() for line in block.split("\n")).strip()
        self._block.clear()
        level, self._level = self._level, 0
        if not block.strip():
            return
        if level:
            heading = " ".join(block.rstrip("¶§#").split())
            self._heading_title = self._heading_title or heading
            self._text.begin(self._location(), level, heading)
            self._last_section = len(self._text)
        elif len(self._text) >= self._last_section + MIN_SECTION or not len(self._text):
            self._text.begin(self._location())
            self._last_section = len(self._text)
        self._text.add(block)

    def _location(self) -> str:
        if self._label is not None:
            return self._label
        anchor, self._anchor = self._anchor, ""
        return f"#{anchor[:100]}" if anchor else f"source line {self.getpos()[0]}"
