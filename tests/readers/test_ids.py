"""Ids of files: never two files under one id, never one file under two."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import plait
from encoders import WordEncoder
from plait.errors import SourceError
from plait.readers import ReadOptions, SourceReport, documents_from
from plait.readers.roots import Root, starts_for


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def ids_of(*paths: str | Path) -> list[str]:
    return [document.id for document in documents_from(paths)]


def test_readmes_of_two_folders_are_two_documents_across_batches(tmp_path: Path) -> None:
    """Issue 24: the second one replaced the first, and nothing said so."""
    write(tmp_path / "one/README.md", "about wool")
    write(tmp_path / "two/README.md", "about silk")
    with plait.open(tmp_path / "ix", create=True, encoder=WordEncoder()) as index:
        index.add_files([tmp_path / "one", tmp_path / "two"], commit_every=1)
        assert sorted(document.id for document in index) == ["one/README.md", "two/README.md"]


def test_readmes_of_two_loads_are_two_documents(tmp_path: Path) -> None:
    write(tmp_path / "one/README.md", "about wool")
    write(tmp_path / "two/README.md", "about silk")
    with plait.open(tmp_path / "ix", create=True, encoder=WordEncoder()) as index:
        for folder in ("one", "two", "one/README.md", "two/README.md"):
            index.add_files(tmp_path / folder)
        texts = {document.id: document.text for document in index}
    assert texts == {"README.md": "about wool", "two/README.md": "about silk"}


def test_a_file_has_one_id_however_its_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "notes/sub/a.txt", "woven")
    (tmp_path / "link").symlink_to(tmp_path / "notes")
    monkeypatch.chdir(tmp_path)
    for given in ("notes", "./notes", "notes/", "notes/.", "notes/sub/..", str(tmp_path / "notes"), "link"):
        assert ids_of(given) == ["sub/a.txt"], given
    monkeypatch.chdir(tmp_path / "notes")
    assert ids_of(".") == ids_of(Path()) == ["sub/a.txt"]
    assert ids_of("sub/a.txt") == ids_of("./sub/a.txt") == ids_of(tmp_path / "notes/sub/a.txt") == ["a.txt"]


def test_a_file_that_is_given_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "notes/sub/a.txt", "woven")
    folder = tmp_path / "notes"
    assert ids_of(folder, folder) == ids_of(folder, folder / "sub") == ids_of(folder / "sub", folder) == ["sub/a.txt"]
    assert ids_of(folder, folder / "sub/a.txt") == ["sub/a.txt"]


def test_roots_with_one_name_are_named_with_the_folders_above(tmp_path: Path) -> None:
    for name in ("x/docs", "y/docs", "z/more"):
        write(tmp_path / name / "a.txt", name)
    assert ids_of(*(tmp_path / name for name in ("x/docs", "y/docs", "z/more"))) == [
        "docs/a.txt",
        "y/docs/a.txt",
        "more/a.txt",
    ]


def test_a_folder_of_a_known_root_belongs_to_that_root(tmp_path: Path) -> None:
    write(tmp_path / "a/sub/x.txt", "x")
    known = [Root("a", str(tmp_path / "a"), "")]
    (start,) = starts_for([tmp_path / "a/sub"], known)
    assert (start.root, start.relative) == (known[0], "sub")
    with plait.open(tmp_path / "ix", create=True, encoder=WordEncoder()) as index:
        index.add_files(tmp_path / "a/sub")
        index.add_files(tmp_path / "a")  # the folder around a known one does not read its files under other ids
        assert [document.id for document in index] == ["x.txt"]


def test_a_prefix_is_not_a_folder_of_the_root_without_one(tmp_path: Path) -> None:
    write(tmp_path / "a/docs/x.txt", "inner")
    write(tmp_path / "b/docs/x.txt", "outer")
    with plait.open(tmp_path / "ix", create=True, encoder=WordEncoder()) as index:
        index.add_files(tmp_path / "a")
        index.add_files(tmp_path / "b/docs")
        assert {document.id: document.text for document in index} == {"docs/x.txt": "inner", "b/docs/x.txt": "outer"}


def test_an_id_of_another_file_is_not_replaced_and_both_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for batch in (1, 100):  # the second document is in another batch, or in the same
        write(folder / "a.jsonl", '{"id": "x", "text": "first"}')
        write(folder / "b.jsonl", '{"id": "x", "text": "second"}\n{"id": "y", "text": "third"}')
        report = SourceReport()
        with plait.open(tmp_path / f"ix{batch}", create=True, encoder=WordEncoder()) as index:
            added = index.add_files(folder, commit_every=batch, report=report)
            assert {document.id: document.text for document in index} == {"x": "first", "y": "third"}
        (conflict,) = added.conflicts
        assert "b.jsonl of data" in conflict
        assert "a.jsonl of data" in conflict
        assert report.n_errors == 1


def test_a_renamed_file_of_records_replaces_its_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "data/a.jsonl", '{"id": "x", "text": "first"}')
    with plait.open(tmp_path / "ix", create=True, encoder=WordEncoder()) as index:
        index.add_files(tmp_path / "data")
        path.rename(tmp_path / "data/b.jsonl")
        assert index.add_files(tmp_path / "data").conflicts == []


def test_an_id_that_comes_again_in_one_file_is_counted_across_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "".join(f'{{"id": "x", "text": "text {n}"}}\n' for n in range(3)))
    with plait.open(tmp_path / "ix", create=True, encoder=WordEncoder()) as index:
        added = index.add_files(path, commit_every=1)
        assert added.repeated == ["x", "x"]
        assert [document.text for document in index] == ["text 2"]


def test_links_are_followed_only_on_demand_and_never_for_ever(tmp_path: Path) -> None:
    write(tmp_path / "in/a.txt", "a")
    write(tmp_path / "out/b.txt", "b")
    (tmp_path / "in/loop").symlink_to(tmp_path / "in")
    (tmp_path / "in/more").symlink_to(tmp_path / "out")
    (tmp_path / "in/same.txt").symlink_to(tmp_path / "in/a.txt")
    (tmp_path / "in/nowhere").symlink_to(tmp_path / "gone")
    assert ids_of(tmp_path / "in") == ["a.txt"]
    followed = documents_from([tmp_path / "in"], options=ReadOptions(follow_links=True))
    assert [document.id for document in followed] == ["a.txt", "more/b.txt"]


def test_special_files_and_other_indexes_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "a")
    os.mkfifo(tmp_path / "pipe")
    plait.open(tmp_path / "ix", create=True, encoder=WordEncoder()).close()
    report = SourceReport()
    assert [document.id for document in documents_from([tmp_path], report=report)] == ["a.txt"]
    assert report.skipped == {"not regular files": 1, "plait indexes": 1}
    with pytest.raises(SourceError, match="not a regular file"):
        list(documents_from([tmp_path / "pipe"]))


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "closed/b.txt", "b")
    refuse_folder(monkeypatch, tmp_path / "closed")
    report = SourceReport()
    assert len(list(documents_from([tmp_path], on_error="skip", report=report))) == 1
    assert "cannot read the folder" in report.first_errors[0]
    assert "closed" in report.first_errors[0]


def refuse_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Lets a folder refuse to be listed, also for root, who may list everything."""
    listed = os.scandir

    def scandir(path: str) -> Any:
        if path == str(folder):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
