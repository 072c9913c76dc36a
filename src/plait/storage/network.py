"""Network file systems. SQLite's log needs memory that all its users share, and the lock of the writer must hold for
all of them: both work between the processes of one computer, not between computers. So plait does not write an index
there unless the user says that only one computer uses it."""

from __future__ import annotations

import os
from pathlib import Path

from plait.errors import StoreError

ALLOW = "PLAIT_NETWORK_DISK"  # environment variable; 1 allows writing
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "afs", "beegfs", "ceph", "cifs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
        "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs",
    }
)  # fmt: skip
MOUNTS = Path("/proc/self/mountinfo")


def network_file_system(path: Path) -> str | None:
    """The name of the network file system that a folder is on; None for a local disk, and where it cannot be known."""
    try:
        device = os.stat(path).st_dev  # noqa: PTH116
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        fields, _, rest = line.partition(" - ")
        if fields.split()[2:3] == [wanted]:
            name = rest.split(maxsplit=1)[0] if rest else ""
            return name if name in NETWORK_FILE_SYSTEMS else None
    return None


def refuse_network_disk(path: Path) -> None:
    """StoreError if a folder is on a network file system and the user has not allowed that."""
    if os.environ.get(ALLOW) == "1":
        return
    name = network_file_system(path)
    if name is not None:
        raise StoreError(
            f"{path} is on a network file system ({name}), and plait does not write there: its log and its lock hold "
            f"only between the processes of one computer. Put the index on a local disk; plait backup copies it. If "
            f"only one computer ever uses this index, set {ALLOW}=1"
        )
