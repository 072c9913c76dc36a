"""The files of a model folder, written as a draft that becomes the folder in one step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from plait.encode.model_card import CARD_NAME
from plait.errors import ConfigError


def check_target(folder: Path, *, force: bool) -> None:
    """Refuses a place that holds something, unless it is a model folder that may be replaced."""
    if not folder.exists():
        return
    is_model = (folder / CARD_NAME).is_file()
    if not force:
        hint = "name another folder, or replace it with --force" if is_model else "name another folder"
        raise ConfigError(f"{folder} exists; {hint}")
    if not is_model:
        raise ConfigError(f"{folder} exists and has no {CARD_NAME}; --force replaces model folders only")


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` that takes its place when all went well, and is removed when not. What was there before
    is kept until then."""
    draft = folder.with_name(f"{folder.name}.new-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        _put_in_place(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _put_in_place(draft: Path, folder: Path) -> None:
    if not folder.exists():
        draft.replace(folder)
        return
    # A folder that holds something cannot be replaced in one step; what was there comes back if the second fails.
    old = folder.with_name(f"{folder.name}.old-{os.getpid()}")
    folder.replace(old)
    try:
        draft.replace(folder)
    except BaseException:
        old.replace(folder)
        raise
    shutil.rmtree(old)


def write_file(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Writes a file; what the card records of it."""
    (folder / name).write_bytes(content)
    return {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def write_card(folder: Path, card: dict[str, Any]) -> None:
    (folder / CARD_NAME).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def tokenizer_bytes(tokenizer: Tokenizer) -> bytes:
    """The tokeniser without its padding and cutting: plait does both itself, and counts what it cuts."""
    described = json.loads(tokenizer.to_str())
    described["padding"] = described["truncation"] = None
    return json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
