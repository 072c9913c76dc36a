"""Names of models on the hub, and the cache of those that were converted for plait. Nothing here uses the network:
`plait.convert.cache` fetches and converts a model when it is first named."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from plait.encode.model_card import CARD_NAME
from plait.errors import ConfigError

CONVERSION = 1  # raise it when conversion gives other vectors; cached models of older numbers are converted again
DEFAULT_REVISION = "main"
HOME_VARIABLE = "PLAIT_HOME"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_REVISION = re.compile(r"[\w.-][\w./-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REFS = "refs"


@dataclass(frozen=True, slots=True)
class HubName:
    """A model of the hub: `ORG/NAME`, optionally with a branch, a tag or a commit."""

    name: str
    revision: str = DEFAULT_REVISION

    def __str__(self) -> str:
        return self.name if self.revision == DEFAULT_REVISION else f"{self.name}@{self.revision}"


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A converted model in the cache."""

    name: str
    commit: str
    precision: str  # that was asked for
    folder: Path


def parse_hub_name(text: str, revision: str = "") -> HubName | None:
    """`ORG/NAME` or `NAME`, with `@REVISION` or without; None if `text` cannot be the name of a model."""
    name, _, given = text.partition("@")
    if not _NAME.fullmatch(name) or name.endswith((".git", ".", "-")) or ".." in name or "--" in name:
        return None
    if "@" in text and not given:
        return None
    if given and revision and given != revision:
        raise ConfigError(f"{text} has the revision {given}, and --revision is {revision}; give one of them")
    chosen = given or revision or DEFAULT_REVISION
    if not _REVISION.fullmatch(chosen) or ".." in chosen:
        raise ConfigError(f"{chosen!r:.100} is not a revision; give a branch, a tag or a commit")
    return HubName(name, chosen)


def hub_name(model: object) -> HubName | None:
    """The hub name that a model was called by; None if it is another name or a path. A name of the hub has one `/`: a
    bare word is the name of a bundled or installed model."""
    if not isinstance(model, str) or model.count("/") - model.partition("@")[2].count("/") != 1:
        return None
    try:
        return parse_hub_name(model)
    except ConfigError:
        return None


def models_home() -> Path:
    """The folder of converted models: PLAIT_HOME/models, or the cache folder of the platform."""
    if given := os.environ.get(HOME_VARIABLE):
        return Path(given).expanduser() / "models"
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "plait" / "models"


def repository_folder(name: str) -> Path:
    """The folder of all conversions of one model."""
    return models_home() / name.replace("/", "--")


def model_folder(name: str, commit: str, precision: str) -> Path:
    """The folder of one conversion."""
    return repository_folder(name) / commit / f"{precision}-v{CONVERSION}"


def known_commit(name: HubName) -> str | None:
    """The commit that a revision had when the model was converted; None if it was not."""
    if _COMMIT.fullmatch(name.revision):
        return name.revision
    try:
        commit = _reference(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def remember_commit(name: HubName, commit: str) -> None:
    """Records the commit of a revision, for `known_commit`."""
    if name.revision == commit:
        return
    reference = _reference(name)
    reference.parent.mkdir(parents=True, exist_ok=True)
    draft = reference.with_name(f"{reference.name}.new-{os.getpid()}")
    draft.write_text(commit, encoding="utf-8")
    draft.replace(reference)


def cached_model(name: HubName, precision: str | None, default: str) -> Path | None:
    """The folder of a converted model; None if it is not in the cache. Without a precision, that of the default, or
    any."""
    commit = known_commit(name)
    if commit is None:
        return None
    folder = model_folder(name.name, commit, precision or default)
    if _is_whole(folder):
        return folder
    if precision is not None:
        return None
    others = sorted(folder.parent.glob(f"*-v{CONVERSION}"))
    return next((other for other in others if _is_whole(other)), None)


def cached_models() -> list[CachedModel]:
    """All converted models in the cache, by name."""
    models = []
    for folder in sorted(models_home().glob(f"*--*/*/*-v{CONVERSION}")):
        commit = folder.parent.name
        if _COMMIT.fullmatch(commit) and _is_whole(folder):
            name = folder.parent.parent.name.replace("--", "/", 1)
            models.append(CachedModel(name, commit, folder.name.removesuffix(f"-v{CONVERSION}"), folder))
    return models


def _is_whole(folder: Path) -> bool:
    return (folder / CARD_NAME).is_file()


def _reference(name: HubName) -> Path:
    return repository_folder(name.name) / _REFS / name.revision.replace("/", "--")
