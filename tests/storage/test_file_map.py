"""Mapped files: read-only views that need no file descriptor."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plait.errors import StoreError
from plait.storage import file_map
from plait.storage.file_map import FileMap


@pytest.fixture(params=["native", "by descriptor"])
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by descriptor":
        monkeypatch.setattr(file_map, "IS_NATIVE", False)


@pytest.mark.usefixtures("_kind")
def test_a_view_is_read_only_and_outlives_its_map(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"wool" * 5000)
    mapped = FileMap(tmp_path / "file")
    view, identity = mapped.view, mapped.identity
    mapped.release(0, len(view))
    del mapped
    gc.collect()
    (tmp_path / "file").rename(tmp_path / "renamed")
    assert (view[:8].tobytes(), len(view), view.readonly) == (b"woolwool", 20_000, True)
    assert identity == file_map.identity_of((tmp_path / "renamed").stat())


@pytest.mark.usefixtures("_kind")
def test_an_empty_file_has_an_empty_view(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert len(FileMap(tmp_path / "file").view) == 0


@pytest.mark.usefixtures("_kind")
@pytest.mark.parametrize(
    "make",
    [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.with_name("file"))],
    ids=["folder", "FIFO", "link"],
)
def test_only_plain_files_are_mapped(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "file").write_bytes(b"wool")
    make(tmp_path / "entry")
    with pytest.raises(StoreError, match="entry is a"):
        FileMap(tmp_path / "entry")


@pytest.mark.usefixtures("_kind")
def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        FileMap(tmp_path / "missing")
    assert caught.value.filename == str(tmp_path / "missing")


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
def test_a_map_keeps_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"wool")
    n_before = len(list(Path("/proc/self/fd").iterdir()))
    maps = [FileMap(tmp_path / "file") for _ in range(300)]
    assert len(list(Path("/proc/self/fd").iterdir())) == n_before
    assert all(mapped.view[0] == ord("w") for mapped in maps)
