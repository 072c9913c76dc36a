"""Which indexes a server has: those of its configuration, and those that clients made below its data folder."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from pathlib import Path

from plait.encode.load import DEFAULT_MODEL, bundled_models, installed_models
from plait.errors import StoreError
from plait.index import Index, open_index
from plait.serve.config import IndexConfig, ServeConfig
from plait.serve.protocol import (
    INDEX_NAME,
    CreateOptions,
    IndexExistsError,
    NotAllowedError,
    UnknownIndexError,
    UnknownModelError,
)
from plait.storage.connection import CATALOGUE

Signature = tuple[tuple[int, int, int], ...]


def find_index(config: ServeConfig, name: str) -> IndexConfig:
    """The entry of an index. UnknownIndexError if there is none."""
    for entry in config.indexes:
        if entry.name == name:
            return entry
    if config.data_dir is not None and re.fullmatch(INDEX_NAME, name):
        path = config.data_dir / name
        if (path / CATALOGUE).is_file() and not path.is_symlink():
            return IndexConfig(name=name, path=path)
    raise UnknownIndexError(f"there is no index {name!r:.100} on this server")


def index_names(config: ServeConfig) -> list[str]:
    """Those of the configuration first, in its order."""
    names = [entry.name for entry in config.indexes]
    if config.data_dir is None or not config.data_dir.is_dir():
        return names
    folders = sorted(entry.name for entry in os.scandir(config.data_dir) if entry.is_dir(follow_symlinks=False))
    return names + [
        name
        for name in folders
        if name not in names and re.fullmatch(INDEX_NAME, name) and (config.data_dir / name / CATALOGUE).is_file()
    ]


def check_writable(config: ServeConfig, entry: IndexConfig) -> None:
    if config.read_only or entry.read_only:
        raise NotAllowedError(f"the index {entry.name} is read-only on this server")


def signature(path: Path) -> Signature | None:
    """Changes with every commit; None if the index is gone. It costs two calls of stat."""
    states = []
    for suffix in ("", "-wal"):
        try:
            state = os.stat(path / f"{CATALOGUE}{suffix}")  # noqa: PTH116 -- called ten times a second
        except OSError:
            if not suffix:
                return None
            continue
        states.append((state.st_ino, state.st_mtime_ns, state.st_size))
    return tuple(states)


def inode(seen: Signature | None) -> int | None:
    """Identifies the folder: another one at the same path has another catalogue."""
    return None if not seen else seen[0][0]


def model_paths(config: ServeConfig) -> dict[str, str | None]:
    """The encoders that clients may name, with what `plait.open` takes for each."""
    names: dict[str, str | None] = {name: name for name in (*bundled_models(), *installed_models())}
    names[DEFAULT_MODEL] = None
    for given in config.models:
        names[Path(given).name if Path(given).is_dir() else given] = given
    return names


def model_of(config: ServeConfig, entry: IndexConfig) -> str | None:
    """The model to open an index with. The configuration names folders that are trusted; an index that was made here
    with one of them remembers which."""
    if entry.model is not None or not config.models:
        return entry.model
    with open_index(entry.path, read_only=True) as index:
        remembered = index.info().properties.get("model")
    return remembered if remembered in config.models else None


def create_index(config: ServeConfig, name: str, options: CreateOptions, write_timeout: float) -> None:
    """Makes an index below the data folder."""
    if config.data_dir is None or config.read_only:
        raise NotAllowedError("this server makes no indexes; start it with --data-dir FOLDER to allow that")
    if not re.fullmatch(INDEX_NAME, name):
        raise NotAllowedError(f"{name!r:.100} is not a name: at most 64 of a-z, 0-9, - and _, a letter or digit first")
    models = model_paths(config)
    if options.model is not None and options.model not in models:
        raise UnknownModelError(f"there is no model {options.model!r:.100}; there are {', '.join(models)}")
    if name in index_names(config):
        raise IndexExistsError(f"there is an index {name!r} already")
    config.data_dir.mkdir(parents=True, exist_ok=True)
    path = config.data_dir / name
    try:
        Index.create(
            path,
            model=None if options.model is None else models[options.model],
            language=options.language,
            pooling=options.pooling,
            chunking=options.chunking,
            write_timeout=write_timeout,
        ).close()
    except StoreError:
        if (path / CATALOGUE).is_file():
            raise IndexExistsError(f"there is an index {name!r} already") from None
        raise


def drop_index(config: ServeConfig, name: str) -> None:
    """Removes an index that clients made. It is renamed first, so that it is gone at once or not at all."""
    entry = find_index(config, name)
    if config.read_only or config.data_dir is None or entry in config.indexes:
        raise NotAllowedError(f"the index {name} was not made through this server, so clients cannot drop it")
    discarded = config.data_dir / f".dropped-{uuid.uuid4().hex}"
    entry.path.rename(discarded)
    shutil.rmtree(discarded, ignore_errors=True)


def remove_discarded(config: ServeConfig) -> None:
    """Removes what an interrupted drop left."""
    if config.data_dir is not None and config.data_dir.is_dir():
        for folder in config.data_dir.glob(".dropped-*"):
            shutil.rmtree(folder, ignore_errors=True)
