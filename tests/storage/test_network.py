"""Network file systems are recognised, and plait does not write there without the user's word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plait.encode.protocol import EmbeddingSpec
from plait.errors import StoreError
from plait.storage import network
from plait.storage.check import check
from plait.storage.network import network_file_system
from plait.storage.store import Store


def create(path: Path) -> Store:
    return Store.create(path, fingerprint="none", spec=EmbeddingSpec(), properties={})


def mount(monkeypatch: pytest.MonkeyPatch, folder: Path, file_system: str) -> None:
    """From now on the folder seems to be on that file system."""
    device = folder.stat().st_dev
    lines = [
        "22 1 254:99 / / rw,relatime - ext4 /dev/root rw",
        f"40 22 {os.major(device)}:{os.minor(device)} / /data rw shared:1 master:2 - {file_system} server:/x rw",
    ]
    mounts = folder / "mountinfo"
    mounts.write_text("\n".join(lines))
    monkeypatch.setattr(network, "MOUNTS", mounts)


def test_local_disks_are_not_taken_for_network_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert network_file_system(tmp_path) is None
    mount(monkeypatch, tmp_path, "ext4")
    assert network_file_system(tmp_path) is None
    monkeypatch.setattr(network, "MOUNTS", tmp_path / "none")
    assert network_file_system(tmp_path) is None


@pytest.mark.parametrize("name", ["nfs", "nfs4", "cifs", "fuse.sshfs"])
def test_writing_to_a_network_disk_is_refused_and_reading_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = create(tmp_path / "ix")
    mount(monkeypatch, tmp_path, name)
    with pytest.raises(StoreError, match=rf"network file system \({name}\).*plait backup.*PLAIT_NETWORK_DISK=1"):
        store.writer()
    with pytest.raises(StoreError, match="network file system"):
        create(tmp_path / "new")
    store.snapshot().close()
    report = check(store.path)
    assert report.ok
    assert any(f"network file system ({name})" in note for note in report.notes)
    monkeypatch.setenv("PLAIT_NETWORK_DISK", "1")
    store.writer().close()
    create(tmp_path / "new")
