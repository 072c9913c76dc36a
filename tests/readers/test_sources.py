"""Files to documents, and errors that name the file and line."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from plait.errors import ConfigError, SourceError
from plait.readers import ReadOptions, SourceReport, Sources, documents_from
from plait.records import Document


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def read(*paths: str | Path, **options: Any) -> list[Document]:
    return list(documents_from(paths, options=ReadOptions(**options)))


def ids_of(*paths: str | Path, **options: Any) -> list[str]:
    return [document.id for document in read(*paths, **options)]


def refusal(path: str | Path) -> str:
    with pytest.raises(SourceError) as caught:
        read(path)
    return str(caught.value)


def test_json_lines_give_documents_with_metadata(tmp_path: Path) -> None:
    first = '{"id": "a", "text": "woven", "title": "T", "year": 2024}'
    lines = first + '\r\n\n{"_id": 7, "text": "strand", "metadata": {"x": 1}}'
    expected = [Document("a", "woven", "T", {"year": 2024}), Document("7", "strand", "", {"x": 1})]
    for name in ("a.jsonl", "a.ndjson", "A.JSONL", "a.jsonl.gz"):
        assert read(write(tmp_path / name, lines)) == expected


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"id": "a", "text": "x"}'))[0].id == "a"
    assert read(write(tmp_path / "a.txt", b"\xef\xbb\xbfwoven"))[0].text == "woven"


def test_tab_separated_text_gives_documents(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.tsv", "0\tfirst\r\n1\tsecond\n")) == [
        Document("0", "first"),
        Document("1", "second"),
    ]
    assert read(write(tmp_path / "b.tsv.gz", "ID\tText\n0\tfirst")) == [Document("0", "first")]


def test_standard_input_is_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO('{"id": "a", "text": "é"}\n'.encode()))
    monkeypatch.setattr(sys, "stdin", given)
    assert read("-") == [Document("a", "é")]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"id": "b", "text": "x"', "line 2, column 24: this is not JSON"),
        (b'{"text": "x"}', "line 2: a document has no 'id'"),
        (b'{"id": 1.5, "text": "x"}', "line 2: the id 1.5 is float"),
        (b'{"id": true, "text": "x"}', "line 2: the id True is bool"),
        (b'{"id": "", "text": "x"}', "line 2: an id is empty"),
        (b'{"id": "b"}', "line 2: document 'b' is blank"),
        (b'{"id": "b", "text": 5}', "line 2: document 'b': its text is int"),
        (b'{"id": "b", "text": "\\ud800"}', "line 2: document 'b': its text has a lone surrogate"),
        (b'{"id": "b", "text": "x", "y": NaN}', "line 2: document 'b': metadata"),
        (b'["b", "x"]', "line 2: expected an object"),
        (b'{"id": "b", "text": "caf\xe9"}', "line 2: byte 49 (0xe9) is not UTF-8"),
        (b'{"id": ' + b"9" * 5000 + b"}", "line 2: this JSON cannot be read"),
        (b"[" * 100_000, "line 2"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, problem: str) -> None:
    good = b'{"id": "a", "text": "x"}\n'
    path = write(tmp_path / "a.jsonl", good + line + b"\n" + good.replace(b'"a"', b'"c"'))
    message = refusal(path)
    assert message.startswith(f"{path}, {problem}")
    report = SourceReport()
    assert [document.id for document in documents_from([path], on_error="skip", report=report)] == ["a", "c"]
    assert (report.n_errors, report.first_errors) == (1, [message])


def test_a_json_array_is_refused_with_advice(tmp_path: Path) -> None:
    assert "jq -c" in refusal(write(tmp_path / "a.jsonl", json.dumps([{"id": "a"}], indent=2)))


@pytest.mark.parametrize("line", ["a", "a\tb\tc", "\ttext", "a\t "])
def test_a_bad_row_is_named(tmp_path: Path, line: str) -> None:
    assert "a.tsv, line 2: " in refusal(write(tmp_path / "a.tsv", f"0\tx\n{line}\n"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252"])
def test_text_is_read_in_the_encodings_that_files_have(tmp_path: Path, encoding: str) -> None:
    mark = b"\xff\xfe" if encoding == "utf-16-le" else b""
    path = write(tmp_path / "a.txt", mark + "one\r\ntwo café\rthree".encode(encoding))
    assert read(path)[0].text == "one\ntwo café\nthree"


def test_damaged_utf16_is_named(tmp_path: Path) -> None:
    assert "begins as utf-16" in refusal(write(tmp_path / "b.txt", "woven".encode("utf-16") + b"\x00"))


def test_a_binary_file_with_a_text_suffix_is_refused(tmp_path: Path) -> None:
    assert "NUL" in refusal(write(tmp_path / "a.txt", b"abc\0def"))


def test_a_damaged_archive_gives_the_readable_part_first(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b'{"id": "%d", "text": "woven %d"}\n' % (n, n * n) for n in range(5000)))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    assert "damaged or cut short" in refusal(path)
    report = SourceReport()
    assert list(documents_from([path], on_error="skip", report=report))
    path.write_bytes(b"not an archive")
    assert str(path) in refusal(path)


def test_a_line_without_end_does_not_fill_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.readers.lines.MAX_LINE", 100)
    assert "line 1 is longer than 100 bytes" in refusal(write(tmp_path / "a.jsonl", b"x" * 1000))


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"x" * 1000)
    with pytest.raises(SourceError, match=r"has 1,000 bytes, more than 100; .* --max-bytes"):
        read(path, max_bytes=100)
    packed = write(tmp_path / "b.txt.gz", b"x" * 100_000)  # small on disk, large in memory
    with pytest.raises(SourceError, match="longer than 2,000 bytes"):
        read(packed, max_bytes=2000)


def test_a_large_file_is_read_as_a_stream(tmp_path: Path) -> None:
    line = json.dumps({"id": "a", "text": "woven " * 100}) + "\n"
    path = write(tmp_path / "a.jsonl", line * 10_000)
    tracemalloc.start()
    assert sum(1 for _ in documents_from([path])) == 10_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 4


def test_a_folder_is_read_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/b/c.txt", ".hidden/x.txt", ".x.txt", "picture.png", "Makefile", "q.PNG"):
        write(tmp_path / name, f"text of {name}")
    write(tmp_path / "blank.txt", " \n")
    write(tmp_path / "noise.xyz", bytes(range(256)))
    (tmp_path / "link").symlink_to(tmp_path / "a")
    report = SourceReport()
    ids = [document.id for document in documents_from([tmp_path], report=report)]
    assert ids == ["Makefile", "b.txt", "a/z.md", "a/b/c.txt"]
    assert report.skipped == {".png": 2, "hidden": 2, "empty": 1, "links": 1, "binary (.xyz)": 1}
    (note,) = report.notes()
    assert note.startswith("skipped 7 files: 2 ")
    assert ids_of(tmp_path, hidden=True) == [".x.txt", "Makefile", "b.txt", ".hidden/x.txt", "a/z.md", "a/b/c.txt"]


def test_only_the_corpus_of_a_beir_folder_is_read(tmp_path: Path) -> None:
    line = '{"_id": "%s", "title": "T", "text": "x"}\n'
    for name in ("corpus.jsonl.gz", "queries.jsonl.gz"):
        write(tmp_path / "set" / name, line % name[0])
    write(tmp_path / "set/qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\tc\t1\n")
    assert [document.id for document in read(tmp_path / "set")] == ["c"]
    assert [document.id for document in read(tmp_path)] == ["c"]
    write(tmp_path / "plain/corpus.jsonl", line % "p")
    write(tmp_path / "plain/more.jsonl", line % "m")
    assert [document.id for document in read(tmp_path / "plain")] == ["p", "m"]


def test_a_missing_source_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no file or folder"):
        documents_from([tmp_path, tmp_path / "missing.txt"])


def test_a_binary_file_that_was_named_is_an_error(tmp_path: Path) -> None:
    assert "a format that plait does not read" in refusal(write(tmp_path / "a.png", b"\x89PNG"))
    assert "binary file" in refusal(write(tmp_path / "a.xyz", bytes(100)))


def test_one_bad_file_does_not_stop_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "a.docx", b"not a zip")
    write(tmp_path / "b.ipynb", "{")
    write(tmp_path / "c.epub", b"PK\x03\x04")
    (tmp_path / "d.txt.gz").write_bytes(b"not gzip")
    write(tmp_path / "e.txt", "fine")
    report = SourceReport()
    assert [document.id for document in documents_from([tmp_path], on_error="skip", report=report)] == ["e.txt"]
    assert report.n_errors == 4
    assert [Path(error.split(",")[0].split(" ")[0].rstrip(":")).name for error in report.first_errors] == [
        "a.docx",
        "b.ipynb",
        "c.epub",
        "d.txt.gz",
    ]


def test_any_error_of_a_reader_is_an_error_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise KeyError("inside a library")

    monkeypatch.setattr("plait.readers.text_files.read_text", fail)
    assert "a.txt cannot be read: KeyError" in refusal(write(tmp_path / "a.txt", "x"))


def test_invalid_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="stop, skip"):
        documents_from([tmp_path], on_error="ignore")
    with pytest.raises(SourceError, match="no source"):
        documents_from([])


def test_only_the_first_few_errors_are_kept(tmp_path: Path) -> None:
    report = SourceReport()
    assert not list(documents_from([write(tmp_path / "a.jsonl", "x\n" * 20)], on_error="skip", report=report))
    assert (report.n_errors, len(report.first_errors)) == (20, 5)
    assert report.notes()[-1] == "  and 15 more"


def test_each_bad_file_is_named_however_many_there_are(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"{number}.jsonl", "x\n" * 9)
    report = SourceReport()
    list(documents_from([tmp_path], on_error="skip", report=report))
    named = {error.split(",")[0] for error in report.first_errors}
    assert (report.n_errors, len(named)) == (270, 30)


def test_progress_is_counted_in_the_bytes_on_disk(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl.gz", '{"id": "a", "text": "x"}\n' * 1000)
    write(tmp_path / "b.txt", "woven")
    write(tmp_path / "c.png", bytes(500))
    report = SourceReport()
    list(documents_from([tmp_path], report=report))
    total = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert report.bytes_read == Sources([tmp_path]).total_bytes() == total
    assert Sources([tmp_path, "-"]).total_bytes() is None
    assert (report.files, report.documents) == (3, 1001)


def test_files_say_where_when_and_how_large_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "woven")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert read(tmp_path)[0].metadata == {"path": str(path), "mtime": "2023-11-14T22:13:20Z", "size": 5}
    assert "path" not in read(write(tmp_path / "b.jsonl", '{"id": "b", "text": "x"}'))[0].metadata
