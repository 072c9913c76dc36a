"""Every document of a source is in exactly one part, wherever the parts are cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.cluster.source_parts import read_part, source_parts
from plait.errors import SourceError
from plait.readers.sources import Sources, documents_from


@pytest.mark.parametrize("part_bytes", [1, 7, 50, 51, 52, 1000, 10**6])
@pytest.mark.parametrize("end", ["\n", ""])
def test_lines_are_read_once_wherever_a_range_ends(tmp_path: Path, part_bytes: int, end: str) -> None:
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"id": str(n), "text": "é" * (n % 9) + f" text {n}"}, ensure_ascii=False) for n in range(25)]
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    parts = list(source_parts(Sources([path]), part_bytes=part_bytes))
    documents = [document for part in parts for document in read_part(part)]
    assert documents == list(documents_from([path]))
    assert (len(parts) > 1) == (part_bytes < path.stat().st_size)


def test_small_files_are_grouped_and_keep_their_ids(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"note-{number}.txt").write_text(f"note {number} " * 5)
    parts = list(source_parts(Sources([tmp_path]), part_bytes=100))
    assert [len(part.files) for part in parts] == [3, 3, 1]
    documents = [document.id for part in parts for document in read_part(part)]
    assert documents == [document.id for document in documents_from([tmp_path])]


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": "a", "text": "x"}\n{"id": 3\n')
    with pytest.raises(SourceError, match=r"bad\.jsonl"):
        [*read_part(next(iter(source_parts(Sources([path])))))]
    with pytest.raises(SourceError, match="standard input"):
        list(source_parts(Sources(["-"])))
