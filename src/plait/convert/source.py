"""`Source`: the folder of a checkpoint. Its files are read with clear errors; links lead out of the folder only in the
cache of huggingface_hub; nothing in it is ever run."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.convert.tensors import Tensors, read_tensors
from plait.errors import ModelError

MAX_JSON = 64_000_000  # bytes
MAX_TOKENIZER = 512_000_000
TOKENIZER, SAFETENSORS, TORCH_WEIGHTS = "tokenizer.json", "model.safetensors", "pytorch_model.bin"
SLOW_TOKENIZERS = ("vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
WEIGHT_FILES = (SAFETENSORS, f"{SAFETENSORS}.index.json", TORCH_WEIGHTS, f"{TORCH_WEIGHTS}.index.json")
_ADVICE = "fetch the checkpoint again"


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint on disk. `name` is what the user called it: a hub name, or the name of the folder."""

    folder: Path
    name: str
    revision: str = ""  # the commit on the hub; empty for a folder

    @classmethod
    def open(cls, folder: Path, name: str = "", revision: str = "") -> Source:
        """The checkpoint in a folder; ModelError if it is not a folder."""
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise ModelError(f"{folder} {what}; name the folder of a checkpoint, or a model of the hub as ORG/NAME")
        return cls(folder, name or folder.resolve().name, revision)

    @property
    def origin(self) -> str:
        """The source for the card: the hub name and commit, or the name of the folder."""
        return f"{self.name}@{self.revision}" if self.revision else self.name

    def path(self, file: str) -> Path:
        """The path of a file that exists; ModelError if it is missing, is no plain file, or is a link to another
        place."""
        path = self.folder / file
        try:
            mode, target = path.stat().st_mode, path.resolve(strict=True)
        except FileNotFoundError:
            raise ModelError(f"{self.folder} has no {file}; {self._seen()}") from None
        except (OSError, RuntimeError, ValueError) as error:
            raise ModelError(f"{path} cannot be read: {error}; {_ADVICE}") from None
        if not stat.S_ISREG(mode):
            raise ModelError(f"{path} is not a plain file; {_ADVICE}")
        if not any(target.is_relative_to(root) for root in self._roots()):
            raise ModelError(f"{path} is a link to {target}, outside of the checkpoint; copy the file into the folder")
        return path

    def has(self, file: str) -> bool:
        """Whether the folder has this file."""
        return (self.folder / file).is_file()

    def files(self, subfolder: str = "") -> list[str]:
        """The names of the files and folders, sorted."""
        try:
            return sorted(entry.name for entry in (self.folder / subfolder).iterdir())
        except OSError:
            return []

    def text(self, file: str, *, max_bytes: int = MAX_JSON) -> str:
        """The content of a text file."""
        path = self.path(file)
        size = path.stat().st_size
        if size > max_bytes:
            raise ModelError(f"{path} has {size:,} bytes; plait reads at most {max_bytes:,} of such a file")
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path} cannot be read as UTF-8: {error}; {_ADVICE}") from None

    def json(self, file: str) -> dict[str, Any]:
        """The JSON object in a file."""
        content = self._parsed(file)
        if not isinstance(content, dict):
            raise ModelError(f"{self.folder / file} must hold a JSON object; it holds a {type(content).__name__}")
        return content

    def json_or_empty(self, file: str) -> dict[str, Any]:
        """The JSON object in a file; empty if there is no such file."""
        return self.json(file) if self.has(file) else {}

    def json_list(self, file: str) -> list[dict[str, Any]]:
        """The JSON array of objects in a file."""
        content = self._parsed(file)
        if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
            raise ModelError(f"{self.folder / file} must hold a JSON array of objects; {_ADVICE}")
        return content

    def has_weights(self, subfolder: str = "") -> bool:
        return any(self.has(_join(subfolder, file)) for file in WEIGHT_FILES)

    def tensors(self, subfolder: str = "") -> Tensors:
        """The weights in a folder: safetensors if it has them, one file or several with an index, else the files of
        torch."""
        for whole in (SAFETENSORS, TORCH_WEIGHTS):
            if self.has(_join(subfolder, whole)):
                return read_tensors([self.path(_join(subfolder, whole))])
            index = _join(subfolder, f"{whole}.index.json")
            if self.has(index):
                return self._sharded(index, subfolder)
        seen = self._seen(subfolder)
        raise ModelError(f"{self.folder / subfolder} has no weights: neither {SAFETENSORS} nor {TORCH_WEIGHTS}; {seen}")

    def tensors_of(self, file: str) -> Tensors:
        """The tensors of one file."""
        return read_tensors([self.path(file)])

    def tokenizer(self, subfolder: str = "") -> str:
        """The content of tokenizer.json; a slow tokenizer is converted by transformers."""
        if self.has(_join(subfolder, TOKENIZER)):
            return self.text(_join(subfolder, TOKENIZER), max_bytes=MAX_TOKENIZER)
        slow = [file for file in SLOW_TOKENIZERS if self.has(_join(subfolder, file))]
        if not slow:
            raise ModelError(
                f"{self.folder / subfolder} has no tokenizer: neither {TOKENIZER} nor {', '.join(SLOW_TOKENIZERS)}"
            )
        return _converted_tokenizer(self, subfolder, slow[0])

    def _sharded(self, index: str, subfolder: str) -> Tensors:
        names = self.json(index).get("weight_map")
        if not isinstance(names, dict) or not names or not all(isinstance(file, str) for file in names.values()):
            raise ModelError(f"{self.folder / index} has no 'weight_map' from tensors to files; {_ADVICE}")
        files = list(dict.fromkeys(names.values()))
        if any(Path(file).name != file for file in files):
            raise ModelError(f"{self.folder / index} names files in other folders; {_ADVICE}")
        return read_tensors([self.path(_join(subfolder, file)) for file in files], names=names)

    def _parsed(self, file: str) -> Any:
        try:
            return json.loads(self.text(file))
        except RecursionError:
            raise ModelError(f"{self.folder / file} is nested too deeply to be a config; {_ADVICE}") from None
        except ValueError as error:
            raise ModelError(f"{self.folder / file} is not JSON: {error}; {_ADVICE}") from None

    def _roots(self) -> list[Path]:
        """The folders in which the files may lie. The hub's cache stores files in `blobs` and links to them from
        `snapshots`."""
        folder = self.folder.resolve()
        repository = folder.parent.parent
        if folder.parent.name != "snapshots" or not repository.name.startswith("models--"):
            return [folder]
        return [folder, repository / "blobs", repository.parent / "blobs"]

    def _seen(self, subfolder: str = "") -> str:
        files = self.files(subfolder)
        more = f" and {len(files) - 8} more" if len(files) > 8 else ""
        return f"it has {', '.join(files[:8]) or 'nothing'}{more}"


def _join(subfolder: str, file: str) -> str:
    return f"{subfolder}/{file}" if subfolder else file


def _converted_tokenizer(source: Source, subfolder: str, slow: str) -> str:
    folder = source.folder / subfolder
    for file in source.files(subfolder):
        if (folder / file).is_file():
            source.path(_join(subfolder, file))  # transformers would follow links
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise ModelError(
            f"{folder} has {slow} and no {TOKENIZER}; converting it needs transformers: pip install 'plait[convert]'"
        ) from None
    try:
        loaded: Any = AutoTokenizer.from_pretrained(str(folder), use_fast=True, trust_remote_code=False)
    except Exception as error:  # a damaged vocabulary fails in many ways
        raise ModelError(f"the tokenizer of {folder} cannot be read from {slow}: {error!s:.300}") from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"the tokenizer of {folder} cannot be converted to {TOKENIZER}")
    return str(backend.to_str())
