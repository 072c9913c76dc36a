"""The work that files are expected to be."""

from __future__ import annotations

import pytest

from plait.readers.walk import SourceFile
from plait.readers.work import WorkLeft
from plait.records import Document


def file(name: str, size: int) -> SourceFile:
    return SourceFile(f"/x/{name}", name, None, name, size)


def test_work_is_learnt_from_files_that_were_read() -> None:
    files = [file(f"{number}.pdf", 1_000_000) for number in range(10)]
    work = WorkLeft(files)
    assert work.left(0) == pytest.approx(1_000_000)  # a tenth of the bytes is text
    for number in range(5):
        work.read(Document("x", "x" * 10_000))  # only a hundredth is
        work.finish(files[number])
    assert work.left(0) == pytest.approx(50_000 + 5 * 10_000, rel=0.2)
    assert work.left(50_000) == pytest.approx(5 * 10_000, rel=0.4)


def test_pictures_are_no_work_and_packed_text_is_more() -> None:
    assert WorkLeft([file("a.png", 10**9)]).left(0) == 0
    assert WorkLeft([file("a.txt.gz", 1000)]).left(0) > 3 * WorkLeft([file("a.txt", 1000)]).left(0)


def test_work_ends_at_nothing() -> None:
    files = [file("a.txt", 10), file("b.txt", 20)]
    work = WorkLeft(files)
    for one in files:
        work.read(Document("x", "x" * 25))
        work.finish(one)
    assert work.left(50) == 0
