"""Files to documents, and errors that name the file and line."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path

import pytest

from plait.errors import ConfigError, SourceError
from plait.readers import SourceReport, documents_from
from plait.readers.sources import SUFFIXES, total_bytes
from plait.records import Document


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def read(*paths: str | Path) -> list[Document]:
    return list(documents_from(paths))


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


def test_bytes_that_are_not_utf8_are_named_by_line_and_position(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\ntwo caf\xe9\n")
    assert refusal(path).startswith(f"{path}, line 2: byte 11 (0xe9) is not UTF-8")
    assert "UTF-16" in refusal(write(tmp_path / "b.txt", "woven".encode("utf-16")))


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
    monkeypatch.setattr("plait.readers.text_files.MAX_FILE", 100)
    assert "longer than 100 bytes" in refusal(write(tmp_path / "a.txt", b"x" * 1000))


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
    (tmp_path / "link").symlink_to(tmp_path / "a")
    report = SourceReport()
    ids = [document.id for document in documents_from([tmp_path], report=report)]
    assert ids == ["b.txt", "a/z.md", "a/b/c.txt"]
    assert report.skipped == {".png": 2, "without a suffix": 1, "empty": 1, "links to folders": 1}
    assert report.notes() == ["skipped 5 files: 2 .png, 1 links to folders, 1 without a suffix, 1 empty"]


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


def test_the_id_of_a_single_file_is_its_path_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "notes/a.txt", "woven")
    monkeypatch.chdir(tmp_path)
    assert read("notes/a.txt")[0].id == "notes/a.txt"
    assert read("./notes/a.txt")[0].id == "notes/a.txt"


@pytest.mark.parametrize(
    ("name", "problem"),
    [("missing.txt", "there is no file"), ("a.pdf", ".pdf"), ("a.json", "jsonl"), ("a", "no suffix")],
)
def test_an_unreadable_source_is_refused_before_anything_is_read(tmp_path: Path, name: str, problem: str) -> None:
    if name != "missing.txt":
        write(tmp_path / name, "x")
    with pytest.raises(SourceError, match=problem):
        documents_from([tmp_path, tmp_path / name])


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


def test_progress_is_counted_in_the_bytes_on_disk(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl.gz", '{"id": "a", "text": "x"}\n' * 1000)
    write(tmp_path / "b.txt", "woven")
    report = SourceReport()
    list(documents_from([tmp_path], report=report))
    assert report.bytes_read == total_bytes([tmp_path]) == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert total_bytes([tmp_path, "-"]) is None
    assert (report.files, report.documents) == (2, 1001)


def test_every_known_suffix_has_a_reader(tmp_path: Path) -> None:
    content = {".jsonl": '{"id": "a", "text": "x"}', ".ndjson": '{"id": "a", "text": "x"}', ".tsv": "a\tx"}
    for suffix in SUFFIXES:
        path = write(tmp_path / f"a{suffix}", content.get(suffix.removesuffix(".gz"), "x"))
        assert read(path)[0].text == "x"
