"""Attachments: committed, checked, replaced and removed like segments."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from plait.encode.protocol import EmbeddingSpec
from plait.errors import CorruptIndexError, StoreError
from plait.storage.attachments import (
    WriteFiles,
    attachment_folder,
    newest_attachment,
    open_attachment,
    read_attachments,
)
from plait.storage.check import check
from plait.storage.connection import CATALOGUE, ReadTransaction
from plait.storage.info import info
from plait.storage.repair import repair
from plait.storage.segment_file import ArraySource, FileRecord, write_file
from plait.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "ix", fingerprint="none", spec=EmbeddingSpec(), properties={})


def files_of(*values: int) -> WriteFiles:
    def write(folder: Path) -> dict[str, FileRecord]:
        source = ArraySource.of("values", "<i8", np.array(values, np.int64))
        return {"table.plait": write_file(folder / "table.plait", "table", [source], attributes={})}

    return write


def values_of(store: Store, name: str) -> list[int] | None:
    opened = open_attachment(store.path, name)
    return None if opened is None else opened[1]["table.plait"].array("values", "<i8", (None,)).tolist()


def test_an_attachment_is_replaced_and_removed_as_a_whole(store: Store) -> None:
    assert values_of(store, "one") is None
    with store.writer() as writer:
        first = writer.attach("one", files_of(1, 2, 3))
        writer.attach("two", files_of(4))
        assert (values_of(store, "one"), values_of(store, "two")) == ([1, 2, 3], [4])
        writer.attach("one", files_of(5))
        assert values_of(store, "one") == [5]
        assert not attachment_folder(store.path, first).exists()
        writer.detach("two")
    assert values_of(store, "two") is None
    assert len(list((store.path / "attachments").iterdir())) == 1
    assert check(store.path).ok
    assert info(store).bytes_by_part["one"] == check(store.path).n_bytes


def test_a_failed_write_leaves_the_older_attachment_and_no_files(store: Store) -> None:
    def failing(folder: Path) -> dict[str, FileRecord]:
        (folder / "table.plait").write_bytes(b"\x89PLAIT")
        raise KeyboardInterrupt

    with store.writer() as writer:
        writer.attach("one", files_of(1))
        with pytest.raises(KeyboardInterrupt):
            writer.attach("one", failing)
        with pytest.raises(StoreError, match="cannot name an attachment"):
            writer.attach("../one", files_of(1))
    assert values_of(store, "one") == [1]
    assert len(list((store.path / "attachments").iterdir())) == 1


def test_the_next_writer_removes_folders_that_no_commit_lists(store: Store) -> None:
    with store.writer() as writer:
        writer.attach("one", files_of(1))
    leftover = attachment_folder(store.path, 77)
    leftover.mkdir()
    assert any("belongs to no commit" in note for note in check(store.path).notes)
    store.writer().close()
    assert not leftover.exists()
    assert values_of(store, "one") == [1]


def test_a_file_that_was_not_committed_is_refused(store: Store) -> None:
    with store.writer() as writer:
        folders = [attachment_folder(store.path, writer.attach(name, files_of(1))) for name in ("one", "two")]
        writer.attach("two", files_of(2))
    write_file(store.path / "other", "table", [ArraySource.of("values", "<i8", np.array([3]))], attributes={})
    (store.path / "other").replace(folders[0] / "table.plait")
    with pytest.raises(CorruptIndexError, match="is not the file that was committed"):
        values_of(store, "one")
    assert check(store.path).damaged_attachments == ["one"]


def test_a_flipped_bit_is_damage(store: Store) -> None:
    with store.writer() as writer:
        file = attachment_folder(store.path, writer.attach("one", files_of(1, 2))) / "table.plait"
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    assert check(store.path).damaged_attachments == ["one"]


@pytest.mark.parametrize(
    "record",
    [
        "{",
        "[]",
        '{"number": 0, "files": {"table.plait": {"nbytes": 1, "header_crc": 2, "table_crc": 3}}}',
        '{"number": true, "files": {"table.plait": {"nbytes": 1, "header_crc": 2, "table_crc": 3}}}',
        '{"number": 1, "files": {"../table.plait": {"nbytes": 1, "header_crc": 2, "table_crc": 3}}}',
        '{"number": 1, "files": {"table.plait": {"nbytes": "1", "header_crc": 2, "table_crc": 3}}}',
        '{"number": 1, "files": {}}',
        b"\x00",
        7,
    ],
)
def test_a_damaged_record_is_reported_and_repaired(store: Store, record: object) -> None:
    with store.writer() as writer:
        writer.attach("one", files_of(1))
        writer.attach("two", files_of(2))
    connection = sqlite3.connect(store.path / CATALOGUE)
    with connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'attachment.one'", [record])
    connection.close()
    with pytest.raises(CorruptIndexError, match="the record of attachment 'one' in the catalogue is damaged"):
        newest_attachment(store.path, "one")
    store.writer().close()  # removes nothing, as the numbers of live attachments are not known
    assert len(list((store.path / "attachments").iterdir())) == 2
    assert check(store.path).damaged_attachments == ["one"]
    assert repair(store.path).removed_attachments == ["one"]
    assert (values_of(store, "one"), values_of(store, "two")) == (None, [2])
    assert len(list((store.path / "attachments").iterdir())) == 1


def test_numbers_of_segments_and_attachments_are_never_shared(store: Store) -> None:
    with store.writer() as writer:
        numbers = [writer.attach(name, files_of(1)) for name in ("one", "two", "one")]
    assert numbers == [1, 2, 3]
    with ReadTransaction(store.path / CATALOGUE) as view:
        assert view.count("next_segment") == 4
        assert [record.number for record in read_attachments(view.rows)] == [3, 2]
