"""Small files of each format, made here so that their content is known."""

from __future__ import annotations

import io
import json
import zipfile

DOCX_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def zipped(**parts: str | bytes) -> bytes:
    """A zip archive; `__` in names stands for /, `_dot_` for a dot."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), content)
    return target.getvalue()


def paragraph(text: str, style: str = "", *, new_page: bool = False) -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    page = "<w:r><w:lastRenderedPageBreak/></w:r>" if new_page else ""
    return f"<w:p>{properties}{page}<w:r><w:t>{text}</w:t></w:r></w:p>"


def docx(*blocks: str, title: str = "") -> bytes:
    body = f'<w:document xmlns:w="{DOCX_NAMESPACE}"><w:body>{"".join(blocks)}</w:body></w:document>'
    styles = (
        f'<w:styles xmlns:w="{DOCX_NAMESPACE}">'
        '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
        '<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style></w:styles>'
    )
    core = f'<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></c>'
    return zipped(word__document_dot_xml=body, word__styles_dot_xml=styles, docProps__core_dot_xml=core)


def epub(*chapters: str) -> bytes:
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    )
    items = "".join(f'<item id="c{n}" href="text/c%20{n}.xhtml"/>' for n in range(len(chapters)))
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        f"<dc:title>A Book</dc:title><dc:creator>Ada</dc:creator></metadata><manifest>{items}</manifest>"
        f"<spine>{spine}</spine></package>"
    )
    pages = {f"OEBPS__text__c {n}_dot_xhtml": chapter for n, chapter in enumerate(chapters)}
    return zipped(**{"META-INF__container_dot_xml": container, "OEBPS__book_dot_opf": package, **pages})


def pdf(*pages: str, title: str = "", bookmarks: tuple[tuple[str, int], ...] = ()) -> bytes:
    """A PDF with one line of text on each page."""
    objects: list[bytes] = []

    def add(content: str) -> int:
        objects.append(content.encode("latin-1"))
        return len(objects)

    font = add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    first_page = 2
    n_pages = len(pages)
    tree = first_page + 2 * n_pages
    for text in pages:
        stream = f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET" if text else ""
        add(
            f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 612 792] /Contents {len(objects) + 2} 0 R "
            f"/Resources << /Font << /F1 {font} 0 R >> >> >>"
        )
        add(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    kids = " ".join(f"{first_page + 2 * n} 0 R" for n in range(n_pages))
    add(f"<< /Type /Pages /Kids [{kids}] /Count {n_pages} >>")
    outline = ""
    if bookmarks:
        root = len(objects) + 1
        outline = f"/Outlines {root} 0 R"
        add(f"<< /Type /Outlines /First {root + 1} 0 R /Last {root + len(bookmarks)} 0 R /Count {len(bookmarks)} >>")
        for number, (name, page) in enumerate(bookmarks):
            following = f"/Next {root + 2 + number} 0 R" if number + 1 < len(bookmarks) else ""
            target = f"[{first_page + 2 * page} 0 R /Fit]"
            add(f"<< /Title ({name}) /Parent {root} 0 R /Dest {target} {following} >>")
    info = add(f"<< /Title ({title}) >>")
    catalogue = add(f"<< /Type /Catalog /Pages {tree} 0 R {outline} >>")
    result = b"%PDF-1.4\n"
    offsets = []
    for number, content in enumerate(objects, 1):
        offsets.append(len(result))
        result += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    trailer = f"<< /Size {len(objects) + 1} /Root {catalogue} 0 R /Info {info} 0 R >>"
    end = (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n{trailer}\nstartxref\n{len(result)}\n%%EOF\n"
    )
    return result + end.encode()


def notebook(*cells: tuple[str, str]) -> bytes:
    """A notebook of (kind, source) cells."""
    made = [{"cell_type": kind, "source": source.splitlines(keepends=True), "outputs": []} for kind, source in cells]
    return json.dumps({"cells": made, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4}).encode()


MESSAGE = b"""From: Ada <ada@example.org>
To: Bob <bob@example.org>
Subject: =?utf-8?q?Caf=C3=A9_at_noon?=
Date: Tue, 14 Nov 2023 22:13:20 +0000
Message-ID: <one@example.org>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: multipart/alternative; boundary=c

--c
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

Let us meet at the caf=E9.
--c
Content-Type: text/html

<p>Let us <b>not</b> meet.</p>
--c--
--b
Content-Type: application/pdf; name=plan.pdf
Content-Disposition: attachment; filename=plan.pdf

binary
--b--
"""
