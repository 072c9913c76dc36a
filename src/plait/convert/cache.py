"""Models of the hub that are converted when they are first named, and kept in the user's cache folder. Later uses need
no network. Two processes that convert the same model at once wait for each other."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from plait.convert.packages import check_packages
from plait.encode.hub_models import (
    HubName,
    cached_model,
    hub_name,
    known_commit,
    model_folder,
    models_home,
    remember_commit,
    repository_folder,
)
from plait.errors import ConfigError, ModelError

logger = logging.getLogger("plait.convert")
LOCK = ".lock"
DEFAULT_PRECISION = "int8"

OnStage = Callable[[str], None]


def convert_named(name: HubName, precision: str | None = None, *, on_stage: OnStage | None = None) -> Path:
    """The folder of a model of the hub: from the cache, or fetched and converted now. Messages go to `on_stage`, by
    default to the log: what takes long as warnings, which Python prints, the rest as information."""
    chosen = precision or DEFAULT_PRECISION
    try:
        check_packages()
    except ConfigError as error:
        raise ModelError(f"{name} is a model of the hub, and is not in the cache {models_home()}; {error}") from None
    from plait.convert.convert import convert_source
    from plait.convert.hub import fetch
    from plait.convert.source import Source

    say = on_stage or logger.info
    announce = on_stage or logger.warning
    with _lock(repository_folder(name.name), announce):
        folder = cached_model(name, precision, chosen)
        if folder is not None:
            return folder  # another process converted it meanwhile
        announce(f"{name} is not in the cache; it is fetched and converted once, to {chosen}")
        snapshot = fetch(name, say=announce)
        to = model_folder(name.name, snapshot.commit, chosen)
        if not to.exists():
            _remove_drafts(to)
            source = Source.open(snapshot.folder, snapshot.name, snapshot.commit)
            convert_source(source, to, precision=chosen, on_stage=say)
        remember_commit(name, snapshot.commit)
        announce(f"{name} is ready: {to}")
        return to


def remove_cached(model: str) -> list[Path]:
    """Removes a model from the cache, all its precisions; with `@COMMIT` or a revision, that one alone. Returns the
    folders; ModelError if there are none."""
    name = hub_name(model)
    if name is None:
        raise ModelError(f"{model!r} is not the name of a converted model; `plait models` lists them")
    repository = repository_folder(name.name)
    if not repository.is_dir():
        raise ModelError(f"{model} is not in the cache {models_home()}; `plait models` lists the models that are")
    with _lock(repository, lambda _: None):
        if "@" not in model:
            folders = [entry for entry in sorted(repository.iterdir()) if entry.is_dir()]
        else:
            commit = known_commit(name)
            folders = [repository / commit] if commit is not None and (repository / commit).is_dir() else []
            if not folders:
                raise ModelError(
                    f"{model} is not in the cache {models_home()}; `plait models` lists the models that are"
                )
        for folder in folders:
            shutil.rmtree(folder)
    if "@" not in model:
        shutil.rmtree(repository, ignore_errors=True)
    return folders


@contextlib.contextmanager
def _lock(folder: Path, announce: OnStage) -> Iterator[None]:
    """One process at a time converts a model."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise ModelError(
            f"the cache of models cannot be written: {error}; set PLAIT_HOME to a folder that you may write"
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce(f"another process is converting into {folder}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _remove_drafts(to: Path) -> None:
    """Removes what a process left that was killed while it converted. The lock is held, so nobody uses it."""
    for draft in to.parent.glob(f"{to.name}.new-*"):
        shutil.rmtree(draft, ignore_errors=True)
