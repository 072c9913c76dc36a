"""Readers of formats: text, headings, location; and what they do with damaged and hostile files."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from plait.errors import SourceError
from plait.readers import ReadOptions, SourceReport, documents_from
from plait.readers.formats import ALL_SUFFIXES, is_text
from plait.records import Document, headings_at, location_at
from readers.samples import MESSAGE, docx, epub, notebook, paragraph, pdf, zipped


def read(path: Path, content: str | bytes, **options: Any) -> list[Document]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(documents_from([path], options=ReadOptions(**options)))


def refusal(path: Path, content: str | bytes, **options: Any) -> str:
    with pytest.raises(SourceError) as caught:
        read(path, content, **options)
    assert path.name in str(caught.value)
    return str(caught.value)


def where(document: Document, words: str) -> tuple[str, tuple[str, ...]]:
    """Location and headings of some words of a document."""
    position = document.text.index(words)
    return location_at(document.sections, document.text, position), headings_at(document.sections, position)


# -- HTML


def test_html_gives_text_with_headings_and_anchors(tmp_path: Path) -> None:
    page = """<html><head><title>The &amp; page</title><style>p {}</style></head><body><nav>menu</nav>
    <h1 id="top">Top</h1><p>First&nbsp;line<br>second <b>bo</b>ld.</p><script>var hidden</script>
    <h2>Inner<a class="headerlink" href="#x">¶</a></h2><pre>a
  b</pre><table><tr><td>1</td><td>2</td></tr></table><ul><li>one<li>two</ul>"""
    (document,) = read(tmp_path / "a.html", page)
    assert document.title == "The & page"
    assert document.text == "Top\n\nFirst line\nsecond bold.\n\nInner¶\n\na\n  b\n\n1 | 2\n\none\n\ntwo"
    assert where(document, "second") == ("#top", ("Top",))
    assert where(document, "two") == ("source line 3", ("Top", "Inner"))


def test_html_in_other_encodings_is_read_as_it_declares(tmp_path: Path) -> None:
    page = '<meta charset="windows-1251"><p>Привет</p>'.encode("windows-1251")
    assert read(tmp_path / "a.html", page)[0].text == "Привет"
    assert read(tmp_path / "b.html", "<p>café</p>".encode("latin-1"))[0].text == "café"
    assert read(tmp_path / "c.html", b'<meta charset="nonsense"><p>caf\xe9</p>')[0].text == "café"


@pytest.mark.parametrize(
    "page", ["<p>a<b", "<<<>>>text", "<script>never closed", "</p></body>x", "<!-- x", "&#xD800;y"]
)
def test_broken_html_is_read_without_an_error(tmp_path: Path, page: str) -> None:
    read(tmp_path / "a.html", page)


def test_an_unclosed_menu_ends_with_the_element_around_it(tmp_path: Path) -> None:
    page = "<body><form><select><option>no</form><p>yes</p></body>"
    assert read(tmp_path / "a.html", page)[0].text == "yes"


# -- PDF


def test_pdf_gives_pages_and_bookmarks(tmp_path: Path) -> None:
    pages = ("Wool is warm", "Chapter Silk is smooth", "Cotton grows")
    content = pdf(*pages, title="Fabrics", bookmarks=(("First", 0), ("Chapter Silk", 1)))
    (document,) = read(tmp_path / "a.pdf", content)
    assert document.title == "Fabrics"
    assert document.metadata["pages"] == 3
    assert where(document, "Wool") == ("page 1", ("First",))
    assert where(document, "smooth") == ("page 2", ("Chapter Silk",))
    assert where(document, "Cotton") == ("page 3", ("Chapter Silk",))


def test_pdfs_that_cannot_be_read_are_named_with_the_reason(tmp_path: Path) -> None:
    assert "damaged, or not a PDF" in refusal(tmp_path / "a.pdf", b"%PDF-1.4 nonsense")
    assert "has no text (pages: 2)" in refusal(tmp_path / "b.pdf", pdf("", ""))
    assert "protected by a password" in refusal(tmp_path / "c.pdf", encrypted_pdf())


def encrypted_pdf() -> bytes:
    """A PDF whose user password is not empty: the values of /U fit no password that PDFium tries."""
    locked = pdf("secret")
    entry = b" /Encrypt << /Filter /Standard /V 1 /R 2 /O (%s) /U (%s) /P -4 >> /ID [(a) (a)]" % (b"o" * 32, b"u" * 32)
    return locked.replace(b" /Info", entry + b" /Info")


# -- DOCX


def test_docx_gives_headings_by_style_and_pages_as_word_saved_them(tmp_path: Path) -> None:
    table = "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p>"
    table += "</w:tc></w:tr></w:tbl>"
    blocks = [paragraph("One", "berschrift1"), paragraph("text"), paragraph("Two", "berschrift2", new_page=True), table]
    (document,) = read(tmp_path / "a.docx", docx(*blocks, title="Report"))
    assert document.title == "Report"
    assert document.text == "One\n\ntext\n\nTwo\n\na | b"
    assert where(document, "text") == ("page 1", ("One",))
    assert where(document, "b") == ("page 2", ("One", "Two"))
    (plain,) = read(tmp_path / "b.docx", docx(paragraph("first"), paragraph("second")))
    assert where(plain, "second") == ("paragraph 2", ())


def test_deleted_text_of_tracked_changes_is_left_out(tmp_path: Path) -> None:
    block = "<w:p><w:del><w:r><w:t>old</w:t></w:r></w:del><w:ins><w:r><w:t>new</w:t></w:r></w:ins></w:p>"
    assert read(tmp_path / "a.docx", docx(block))[0].text == "new"


def test_protected_and_damaged_office_files_are_named(tmp_path: Path) -> None:
    assert "protected by a password" in refusal(tmp_path / "a.docx", b"\xd0\xcf\x11\xe0" + bytes(100))
    assert "not of its format" in refusal(tmp_path / "b.docx", b"PK nonsense")
    assert "has no part word/document.xml" in refusal(tmp_path / "c.docx", zipped(other="x"))
    whole = docx(paragraph("woven " * 1000))
    assert "b.docx" in refusal(tmp_path / "b.docx", whole[: len(whole) // 2])
    damaged = bytearray(whole)
    damaged[60] ^= 255
    assert "damaged" in refusal(tmp_path / "e.docx", bytes(damaged))


# -- bombs


def test_entities_are_refused(tmp_path: Path) -> None:
    for entity in ('<!ENTITY x "boom">', '<!ENTITY x SYSTEM "file:///etc/passwd">'):
        body = f"<!DOCTYPE d [{entity}]><d>&x;</d>"
        assert "declares XML entities" in refusal(tmp_path / "a.docx", zipped(word__document_dot_xml=body))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    bomb = zipped(word__document_dot_xml=b"\0" * 30_000_000)
    assert len(bomb) < 40_000
    assert "unpacks to 30,000,000 bytes" in refusal(tmp_path / "a.docx", bomb)


def test_an_archive_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"x" * 1_000_000)
    lying = target.getvalue().replace((1_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert "damaged" in refusal(tmp_path / "a.docx", lying)


def test_xml_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    deep = "<a>" * 2000 + "</a>" * 2000
    assert "nested more than" in refusal(tmp_path / "a.docx", zipped(word__document_dot_xml=deep))


def test_a_gzip_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    assert "longer than 1,000,000 bytes" in refusal(
        tmp_path / "a.txt.gz", gzip.compress(b"x" * 50_000_000), max_bytes=1_000_000
    )


# -- EPUB


def test_epub_gives_chapters(tmp_path: Path) -> None:
    chapters = ("<h1>Start</h1><p>wool</p>", "<h1>Middle</h1><p>silk</p><h2>Deep</h2><p>linen</p>")
    (document,) = read(tmp_path / "a.epub", epub(*chapters))
    assert (document.title, document.metadata["author"]) == ("A Book", "Ada")
    assert where(document, "wool") == ("chapter 1", ("Start",))
    assert where(document, "linen") == ("chapter 2", ("Middle", "Deep"))
    assert "no chapter" in refusal(tmp_path / "b.epub", epub())
    assert "has no part META-INF" in refusal(tmp_path / "c.epub", zipped(x="y"))


# -- tables


def test_a_table_with_a_text_has_a_document_for_each_row(tmp_path: Path) -> None:
    table = 'id,text,year\n1,"wool, and\nmore",2020\n,silk,2021\n'
    first, second = read(tmp_path / "a.csv", table)
    assert (first.id, first.text, first.metadata) == ("1", "wool, and\nmore", {"year": "2020"})
    assert (second.id, second.metadata["year"]) == ("a.csv#3", "2021")
    assert where(second, "silk") == ("row 3", ())


def test_columns_can_be_named(tmp_path: Path) -> None:
    table = "sku;name;description\na1;Wool;warm\nb2;Silk;smooth\n"
    documents = read(tmp_path / "a.csv", table, id_field="sku", title_field="name", text_field="description")
    assert [(one.id, one.title, one.text) for one in documents] == [("a1", "Wool", "warm"), ("b2", "Silk", "smooth")]


def test_any_other_table_is_one_document(tmp_path: Path) -> None:
    (document,) = read(tmp_path / "a.csv", "city,people\nRome,3\n\nOslo,1\n")
    assert document.text == "city: Rome, people: 3\ncity: Oslo, people: 1"
    assert where(document, "Oslo") == ("row 4", ())  # as a spreadsheet counts
    assert read(tmp_path / "b.csv", "city\tx\nR\xf6m\t3\n".encode("latin-1"))[0].text == "city: Röm, x: 3"
    assert read(tmp_path / "c.tsv", "a\tb\tc\n1\t2\t3\n")[0].text == "a: 1, b: 2, c: 3"
    assert read(tmp_path / "d.tsv", "q\ttext\tn\n7\twool\t3\n")[0].text == "wool"


def test_a_large_table_without_a_text_asks_for_its_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.readers.fields.MAX_TABLE_TEXT", 100)
    assert "--text-field" in refusal(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 100)


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_parquet_and_arrow_are_tables(tmp_path: Path, suffix: str) -> None:
    import datetime

    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    table = pyarrow.table(
        {"id": [1, 2], "text": ["wool", "silk"], "when": [datetime.date(2024, 1, 2), None], "x": [float("nan"), 1.5]}
    )
    path = tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif suffix == ".feather":
        pyarrow.feather.write_feather(table, path)
    else:
        with pyarrow.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    first, second = documents_from([path])
    assert (first.id, first.text, first.metadata) == ("1", "wool", {"when": "2024-01-02", "x": None})
    assert where(second, "silk") == ("row 2", ())
    assert "damaged" in refusal(tmp_path / f"b{suffix}", b"nonsense" * 10)


# -- JSON


def test_json_arrays_are_records(tmp_path: Path) -> None:
    items = [{"id": 7, "text": "wool", "year": 2020}, {"text": "silk", "author": {"name": "Ada"}}]
    for value in (items, {"version": 1, "items": items}):
        first, second = read(tmp_path / "a.json", json.dumps(value))
        assert (first.id, first.metadata) == ("7", {"year": 2020})
        assert second.id == "a.json#2"
        assert where(second, "silk") == ("item 2", ())
    named = read(tmp_path / "b.json", json.dumps(items[1:]), title_field="author.name")
    assert (named[0].title, named[0].text) == ("Ada", "silk")


def test_any_other_json_is_one_document(tmp_path: Path) -> None:
    (document,) = read(tmp_path / "a.json", '{"name": "plait", "scripts": {"test": "make"}, "n": [1, 2], "none": null}')
    assert document.text == "name: plait\nscripts.test: make\nn: 1, 2"
    assert where(document, "make") == ("$.scripts", ("scripts",))
    assert "line 2: this is not JSON" in refusal(tmp_path / "b.json", "{\n x")
    assert "cannot be read" in refusal(tmp_path / "c.json", "[" * 100_000)
    assert read(tmp_path / "d.json", " ") == []


def test_notebooks_have_cells(tmp_path: Path) -> None:
    content = notebook(("markdown", "# Start\nhello"), ("code", "x = 1"), ("markdown", "## More\nbye"))
    (document,) = read(tmp_path / "a.ipynb", content)
    assert (document.title, document.metadata["language"]) == ("Start", "python")
    assert where(document, "x = 1") == ("cell 2", ("Start",))
    assert where(document, "bye") == ("cell 3", ("Start", "More"))
    assert "no list of cells" in refusal(tmp_path / "b.ipynb", '{"cells": 5}')
    assert "no list of cells" in refusal(tmp_path / "c.ipynb", "[]")


# -- e-mail


def test_messages_have_a_subject_and_a_text(tmp_path: Path) -> None:
    (document,) = read(tmp_path / "a.eml", MESSAGE)
    assert (document.title, document.text) == ("Café at noon", "Let us meet at the café.")
    assert document.metadata["from"] == "Ada <ada@example.org>"
    assert document.metadata["date"] == "2023-11-14T22:13:20+00:00"
    assert document.metadata["attachments"] == ["plan.pdf"]
    html = b"Subject: x\nContent-Type: text/html\n\n<p>only <b>html</b></p>"
    assert read(tmp_path / "b.eml", html)[0].text == "only html"
    assert "no headers" in refusal(tmp_path / "c.eml", "just text\n\nmore")


def test_a_mailbox_has_a_document_for_each_message(tmp_path: Path) -> None:
    second = b"Subject: two\n\nbody\n>From here\n"
    first, other, again = read(tmp_path / "a.mbox", b"\n".join(b"From x\n" + m for m in (MESSAGE, second, MESSAGE)))
    assert (first.id, other.id, again.id) == (
        "a.mbox#one@example.org",
        "a.mbox#2",
        "a.mbox#one@example.org#3",
    )
    assert other.text == "body\nFrom here"
    assert where(other, "body") == ("message 2", ())
    assert "not a mailbox" in refusal(tmp_path / "b.mbox", "nothing")


# -- code


PYTHON = '''"""A module about wool."""
import os


@decorated
def spin(wool):
    """Spins."""


class Loom:
    def weave(self):
        return "cloth"
'''


def test_python_has_classes_and_functions(tmp_path: Path) -> None:
    (document,) = read(tmp_path / "a.py", PYTHON)
    assert (document.title, document.text) == ("A module about wool.", PYTHON)
    assert where(document, "Spins") == ("line 7", ("def spin",))
    assert where(document, "@decorated") == ("line 5", ("def spin",))
    assert where(document, "cloth") == ("line 12", ("class Loom", "def weave"))
    (old,) = read(tmp_path / "old.py", "print 'old'\ndef f():\n    pass\n")
    assert where(old, "pass") == ("line 3", ("def f",))


@pytest.mark.parametrize(
    ("suffix", "code", "headings"),
    [
        (".c", "int *f(int x) {\n return 0; // here\n}\n", ("function f",)),
        (".cpp", "namespace n {\nstruct S {\n int g() { return 1; /* here */ }\n};\n}\n",
         ("namespace n", "struct S", "function g")),
        (".js", "class A {\n m() { return 1; /* here */ }\n}\n", ("class A", "method m")),
        (".ts", "interface I {\n x: number; // here\n}\n", ("interface I",)),
        (".java", "class A {\n int f() { return 1; /* here */ }\n}\n", ("class A", "method f")),
        (".go", "package p\nfunc F() int {\n return 1 // here\n}\n", ("function F",)),
        (".rs", "impl T {\n fn f() { /* here */ }\n}\n", ("impl T", "function f")),
        (".sh", "build() {\n  make # here\n}\n", ("build()",)),
        (".rb", "class A\n  def f\n    1 # here\n", ("class A", "def f")),
        (".sql", "CREATE TABLE wool (\n id int -- here\n)", ("CREATE TABLE wool",)),
    ],
)  # fmt: skip
def test_code_has_definitions(tmp_path: Path, suffix: str, code: str, headings: tuple[str, ...]) -> None:
    (document,) = read(tmp_path / f"a{suffix}", code)
    assert document.text == code
    assert where(document, "here")[1] == headings


def test_code_is_read_without_a_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.readers.code_files._parser", lambda _: None)
    (document,) = read(tmp_path / "a.rs", "impl T {\n  fn f() { /* here */ }\n}\n")
    assert where(document, "here") == ("line 2", ("impl T", "fn f"))


# -- all of them


@pytest.mark.parametrize(
    ("name", "content", "library"),
    [("a.pdf", pdf("x"), "pypdfium2"), ("a.parquet", b"PAR1", "pyarrow"), ("a.feather", b"FEA1", "pyarrow")],
)
def test_a_missing_library_is_named_with_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, library: str
) -> None:
    for module in [one for one in sys.modules if one.split(".")[0] == library] + [library]:
        monkeypatch.setitem(sys.modules, module, None)
    message = refusal(tmp_path / name, content)
    assert library in message
    assert "pip install 'plait[files]'" in message


@pytest.mark.parametrize("suffix", ALL_SUFFIXES)
@pytest.mark.parametrize("content", [b"", b"\n", b"\0\1\2", b"\xff\xfe", b"{", b"PK\x03\x04", b"%PDF-1.7\n", b"x" * 50])
def test_no_content_makes_a_reader_fail_with_anything_but_a_source_error(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    (tmp_path / f"a{suffix}").write_bytes(content)
    report = SourceReport()
    documents = list(documents_from([tmp_path], on_error="skip", report=report))
    assert len(documents) + report.n_errors + report.skipped.total() == 1


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"plain text\n", True),
        ("Grüße".encode(), True),
        ("Grüße aus Köln, sagt er".encode("latin-1"), True),
        ("Grüße".encode()[:-3], True),  # cut inside a character
        ("woven".encode("utf-16"), True),
        (b"\x7fELF\0\0", False),
        (bytes(range(128, 256)), False),
        (b"\x01\x02\x03\x04 text", False),
    ],
)
def test_text_is_recognized_by_its_first_bytes(start: bytes, expected: bool) -> None:
    assert is_text(start) is expected
