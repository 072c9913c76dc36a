"""Collections elsewhere: in an object store by fsspec, or on a network file system. SQLite needs a local disk, so
shards are copied to one before they are opened. On the way there the manifest goes last: nothing is half-published."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

from plait.cluster.manifest import DRAFT, MANIFEST, Manifest, check_shards, from_json, read_manifest, to_json
from plait.errors import ConfigError, CorruptIndexError, NotAnIndexError, StoreError
from plait.storage.fsync import make_folders, storage_errors, sync_folder
from plait.storage.network import network_file_system

CACHE = Path.home() / ".cache" / "plait" / "shards"


def is_remote(location: str) -> bool:
    """Whether a location is an address of fsspec, such as s3://bucket/big."""
    return "://" in location


def cache_folder(uri: str, cache: Path | None = None) -> Path:
    """Where the copy of a remote collection is kept on this machine."""
    return (CACHE if cache is None else cache) / hashlib.blake2b(uri.encode(), digest_size=8).hexdigest()


def push(folder: Path, uri: str) -> int:
    """Copies a collection to an address; returns how many shards were copied. Shards that are there already, with all
    files of their size, stay."""
    manifest = read_manifest(folder)
    check_shards(folder, manifest)
    files, root = _file_system(uri)
    n_copied = 0
    for number, shard in enumerate(manifest.shards):
        source = manifest.shard_path(folder, number)
        wanted = {str(file.relative_to(source)): file.stat().st_size for file in source.rglob("*") if file.is_file()}
        if _sizes(files, f"{root}/{shard.uri}") == wanted:
            continue
        for name in wanted:
            target = f"{root}/{shard.uri}/{name}"
            files.makedirs(target.rpartition("/")[0], exist_ok=True)
            files.put_file(str(source / name), target)
        n_copied += 1
    files.makedirs(root, exist_ok=True)
    files.pipe_file(f"{root}/{MANIFEST}", to_json(manifest).encode())
    return n_copied


def pull_manifest(uri: str, folder: Path) -> Manifest:
    """The manifest at an address; it becomes that of the local folder."""
    files, root = _file_system(uri)
    path = f"{root}/{MANIFEST}"
    try:
        data = files.cat_file(path)
    except FileNotFoundError:
        raise NotAnIndexError(f"there is no collection at {uri}: it has no {MANIFEST}; check the address") from None
    manifest = from_json(Path(path), data)
    with storage_errors(folder):
        make_folders(folder)
        draft = folder / f"{DRAFT}.{uuid4().hex[:8]}"
        draft.write_bytes(data)
        draft.replace(folder / MANIFEST)
    return manifest


def pull_shard(uri: str, shard_uri: str, path: Path) -> Path:
    """A shard of a remote collection as the local folder `path`, complete or not at all; copied if it is not there."""
    if path.is_dir():
        return path
    files, root = _file_system(uri)
    source = f"{root}/{shard_uri}"
    sizes = _sizes(files, source)
    if not sizes:
        raise NotAnIndexError(f"the shard {shard_uri} of {uri} is missing; push the collection again")
    draft = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    with storage_errors(path):
        try:
            for name in sizes:
                make_folders((draft / name).parent)
                files.get_file(f"{source}/{name}", str(draft / name))
            if {name: (draft / name).stat().st_size for name in sizes} != sizes:
                raise CorruptIndexError(f"the shard {shard_uri} of {uri} changed while it was copied; try again")
            _put_in_place(draft, path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return path


def pull(uri: str, folder: Path) -> Manifest:
    """Copies a whole collection to this machine; shards that are there already stay."""
    manifest = pull_manifest(uri, folder / ".pulled")
    for number, shard in enumerate(manifest.shards):
        pull_shard(uri, shard.uri, manifest.shard_path(folder, number))
    (folder / ".pulled" / MANIFEST).replace(folder / MANIFEST)
    shutil.rmtree(folder / ".pulled", ignore_errors=True)
    return manifest


def local_copy(path: Path, cache: Path | None = None) -> Path:
    """A shard folder on a local disk: `path` itself, or a copy if it is on a network file system."""
    if network_file_system(path) is None:
        return path
    copy = cache_folder(str(path.parent.absolute()), cache) / path.name
    if not copy.is_dir():
        draft = copy.with_name(f".{copy.name}.{uuid4().hex[:8]}")
        with storage_errors(copy):
            make_folders(copy.parent)
            try:
                shutil.copytree(path, draft)
                _put_in_place(draft, copy)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return copy


def refuse_network_writes(folder: Path) -> None:
    if (name := network_file_system(folder)) is not None:
        raise StoreError(
            f"{folder} is on a network file system ({name}), where SQLite cannot write safely: documents are added by "
            f"building again, or on a local disk"
        )


def _put_in_place(draft: Path, path: Path) -> None:
    """Renames a complete folder, unless another process was faster."""
    if not path.is_dir():
        draft.rename(path)
        sync_folder(path.parent)


def _file_system(uri: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise ConfigError(f"{uri} needs fsspec; pip install 'plait[cluster]'") from None
    try:
        files, root = fsspec.core.url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{uri} cannot be reached: {error}") from None
    return files, str(root).rstrip("/")


def _sizes(files: Any, folder: str) -> dict[str, int]:
    """The size of every file below a folder; empty if there is none."""
    try:
        listed = files.find(folder, detail=True)
    except FileNotFoundError:
        return {}
    return {name[len(folder) :].lstrip("/"): int(facts["size"]) for name, facts in listed.items()}
