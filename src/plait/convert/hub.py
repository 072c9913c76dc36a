"""A model of the hub, by name, as a folder on disk. huggingface_hub downloads the files that a conversion reads into
its own cache, resumes broken downloads and takes the token from the environment; files with code are never fetched."""

from __future__ import annotations

import errno
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from plait.encode.hub_models import HubName
from plait.errors import ModelError

# Files that describe a model, in any folder but those of other runtimes.
_DESCRIPTIONS = ("*.json", "*.txt", "*.model", "artifact.metadata", "README.md", "LICENSE*", "LICENCE*", "NOTICE*")
_HEADS = ("colbert_linear.pt", "sparse_linear.pt")
_OTHER_RUNTIMES = ("openvino", "coreml", "tf", "flax", "gguf", "onnx", "runs", "checkpoint-*", "eval", ".*")
_SAFETENSORS = ("model.safetensors", "model-*-of-*.safetensors")
_TORCH = ("pytorch_model.bin", "pytorch_model-*-of-*.bin", "*.dnn")
_ONNX = ("model_optimized.onnx", "model.onnx", "model.onnx_data", "model.onnx.data", "model.int8.onnx")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of one commit of a model, on disk."""

    folder: Path
    name: str
    commit: str


def fetch(
    name: HubName,
    *,
    cache_dir: Path | None = None,
    endpoint: str | None = None,
    show_progress: bool = True,
    say: Say = lambda _: None,
) -> Snapshot:
    """The snapshot of a model, downloaded if it is not in the cache of huggingface_hub. Without network, the snapshot
    that is there; ModelError if there is none."""
    library = _library()
    try:
        info = library.HfApi(endpoint=endpoint, library_name="plait").model_info(
            name.name, revision=name.revision, files_metadata=True
        )
    except Exception as error:
        failure = _failure(error, name)
        if failure is not None:
            raise failure from error
        snapshot = _cached(library, name, cache_dir)
        if snapshot is None:
            raise _unreachable(error, name) from error
        say(f"the hub cannot be reached; using {name} at {snapshot.commit[:12]} from the cache")
        return snapshot
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    chosen = choose_files(list(sizes))
    _check_disk(library, name, str(info.sha), {file: sizes[file] for file in chosen}, cache_dir)
    n_bytes = sum(sizes[file] for file in chosen)
    say(f"fetching {name} at {str(info.sha)[:12]}: {len(chosen)} files, {n_bytes / 1e6:,.1f} MB")
    return _download(library, name, str(info.sha), chosen, cache_dir, endpoint, show_progress)


def choose_files(files: Sequence[str]) -> list[str]:
    """The files of a repository that a conversion reads: descriptions, and weights in the safest format that each
    folder has. Graphs are taken only if there are no other weights, or if they are all there is to a model."""
    chosen = [file for file in files if _is_description(file)]
    by_folder: dict[str, list[str]] = {}
    for file in files:
        if not _is_of_other_runtime(file):
            by_folder.setdefault(str(PurePosixPath(file).parent), []).append(file)
    for inside in by_folder.values():
        safe = _matching(inside, _SAFETENSORS)
        if any(PurePosixPath(file).name == "model.safetensors" for file in safe):
            safe = _matching(safe, _SAFETENSORS[:1])
        chosen += safe or _matching(inside, _TORCH)
        chosen += _matching(inside, _HEADS)
    names = {PurePosixPath(file).name for file in by_folder.get(".", [])}
    has_weights = any(fnmatch(file, pattern) for file in names for pattern in (*_SAFETENSORS, *_TORCH))
    if not has_weights or names & {"onnx_config.json", "plait.json"}:
        graphs = _matching(by_folder.get(".", []), _ONNX)
        chosen += graphs or _matching([file for file in files if file.startswith("onnx/")], _ONNX)
    return sorted(set(chosen))


def _matching(files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [file for file in files if any(fnmatch(PurePosixPath(file).name, pattern) for pattern in patterns)]


def _is_description(file: str) -> bool:
    return not _is_of_other_runtime(file) and bool(_matching([file], _DESCRIPTIONS))


def _is_of_other_runtime(file: str) -> bool:
    folders = PurePosixPath(file).parent.parts
    return any(fnmatch(folder, pattern) for folder in folders for pattern in _OTHER_RUNTIMES)


def _library() -> Any:
    if find_spec("huggingface_hub") is None:
        raise ModelError("fetching a model by name needs huggingface_hub: pip install 'plait[convert]'")
    import huggingface_hub

    return huggingface_hub


def _download(
    library: Any,
    name: HubName,
    commit: str,
    files: list[str],
    cache_dir: Path | None,
    endpoint: str | None,
    show_progress: bool,
) -> Snapshot:
    try:
        folder = library.snapshot_download(
            name.name,
            revision=commit,
            # File names are patterns here; brackets in a name would be special.
            allow_patterns=[re.sub(r"([*?[])", r"[\1]", file) for file in files],
            cache_dir=cache_dir,
            endpoint=endpoint,
            tqdm_class=None if show_progress and sys.stderr.isatty() else _quiet_bar(),
            library_name="plait",
        )
    except Exception as error:
        raise (_failure(error, name) or _unreachable(error, name)) from error
    _remember_revision(Path(folder), name, commit)
    missing = [file for file in files if not (Path(folder) / file).is_file()]
    if missing:
        raise ModelError(f"the download of {name} is not complete: {missing[0]} is missing; run the command again")
    return Snapshot(Path(folder), name.name, commit)


def _remember_revision(folder: Path, name: HubName, commit: str) -> None:
    """Writes the commit of a branch or tag into the cache, as huggingface_hub does: without network it is found again
    by its name."""
    if name.revision == commit or folder.parent.name != "snapshots":
        return
    reference = folder.parent.parent / "refs" / name.revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    draft = reference.with_name(f"{reference.name}.new")
    draft.write_text(commit, encoding="utf-8")
    draft.replace(reference)


def _quiet_bar() -> Any:
    from huggingface_hub import utils

    bar: Any = utils.tqdm  # type: ignore[attr-defined,unused-ignore]

    class QuietBar(bar):  # type: ignore[misc,unused-ignore]
        """A progress bar that shows nothing."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})

    return QuietBar


def _cached(library: Any, name: HubName, cache_dir: Path | None) -> Snapshot | None:
    """The snapshot in the cache of huggingface_hub; None if there is none, or only a part of one."""
    for patterns in (_SAFETENSORS, _TORCH, _ONNX):
        try:
            folder = library.snapshot_download(
                name.name,
                revision=name.revision,
                cache_dir=cache_dir,
                local_files_only=True,
                allow_patterns=[*_DESCRIPTIONS, *_HEADS, *(f"*{pattern}" for pattern in patterns)],
                ignore_patterns=[f"{folder}/*" for folder in _OTHER_RUNTIMES if folder != "onnx"],
            )
        except (OSError, ValueError):
            continue
        files = [str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()]
        if _matching(files, patterns):
            return Snapshot(Path(folder), name.name, Path(folder).name)
    return None


def _check_disk(library: Any, name: HubName, commit: str, sizes: Mapping[str, int], cache_dir: Path | None) -> None:
    from huggingface_hub import constants

    cache = Path(cache_dir or constants.HF_HUB_CACHE)
    missing = sum(
        size
        for file, size in sizes.items()
        if not isinstance(library.try_to_load_from_cache(name.name, file, cache_dir=cache, revision=commit), str)
    )
    existing = next((folder for folder in (cache, *cache.parents) if folder.is_dir()), Path())
    free = shutil.disk_usage(existing).free
    if missing > free:
        raise ModelError(
            f"{name} needs {missing / 1e6:,.0f} MB in {cache}, and its disk has {free / 1e6:,.0f} MB left; make room, "
            f"or set HF_HOME to a folder on another disk"
        )


def _failure(error: Exception, name: HubName) -> ModelError | None:
    """The error with what to do about it; None if the hub was not reached."""
    from huggingface_hub import errors

    known: list[tuple[Any, str]] = [
        (
            errors.GatedRepoError,
            f"{name.name} is gated: accept its terms on the hub, then set HF_TOKEN to a token of your account",
        ),
        (
            errors.RepositoryNotFoundError,
            (
                f"there is no folder {name.name}, and no model {name.name} on the hub that you may read; check the "
                f"name, or set HF_TOKEN if the model is private"
            ),
        ),
        (
            errors.RevisionNotFoundError,
            f"{name.name} has no revision {name.revision!r}; give a branch, a tag or a commit of it",
        ),
        (
            errors.HFValidationError,
            f"{name.name!r:.100} is not the name of a model: {error!s:.200}; write ORG/NAME",
        ),
    ]
    for kind, message in known:
        if isinstance(error, kind):
            return ModelError(message)
    if isinstance(error, errors.HfHubHTTPError):
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if status in (401, 403):
            return ModelError(
                f"the hub refuses access to {name.name} (status {status}); check HF_TOKEN, and that your account may "
                f"read the model"
            )
        return None
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(
            f"the disk is full while fetching {name}: {error}; make room, or set HF_HOME to a folder on another disk"
        )
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EROFS):
        return ModelError(
            f"the cache of huggingface_hub cannot be written: {error}; set HF_HOME to a folder that you may write"
        )
    return None


def _unreachable(error: Exception, name: HubName) -> ModelError:
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return ModelError(
            f"{name} is not in the cache of huggingface_hub, and HF_HUB_OFFLINE forbids to fetch it; unset it, or "
            f"give the folder of the checkpoint"
        )
    reason = str(error).split("\n", 1)[0][:200] or type(error).__name__
    return ModelError(
        f"the hub cannot be reached ({reason}), and {name} is not in the cache of huggingface_hub; check the network "
        f"(HTTPS_PROXY, HF_ENDPOINT), or give the folder of a checkpoint"
    )
