"""Converted forms of the small checkpoints, made once for all tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat.calls import CHECKPOINTS
from plait.convert.convert import convert

ORIGIN = Path(__file__).parent / "origin"
Converted = Callable[[str], str]


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """The folder of a checkpoint in fp32."""
    root = tmp_path_factory.mktemp("converted")

    def folder(name: str) -> str:
        if not (root / name).exists():
            convert(CHECKPOINTS / name, root / name, precision="fp32", n_threads=1)
        return str(root / name)

    return folder


def origin(library: str) -> dict[str, Any]:
    """What `make_origin` wrote."""
    content: dict[str, Any] = json.loads((ORIGIN / f"{library}.json").read_text(encoding="utf-8"))
    return content
