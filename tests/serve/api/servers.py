"""The application over a small index, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

import plait
from plait.serve.app import create_app
from plait.serve.config import IndexConfig, ServeConfig
from plait.serve.keys import KeyFile, make_key, new_key_file, write_keys
from plait.serve.runtime.runtime import ServeRuntime

DOCUMENTS = [
    {"id": "loom", "text": "A loom crosses warp and weft.", "year": 2019, "lang": "en", "tenant": "a"},
    {"id": "vectors", "text": "Vectors are combined: each is mixed with its neighbours.", "year": 2024, "tenant": "a"},
    {"id": "needle", "text": "A needle pulls thread through cloth.", "year": 2021, "lang": "en", "tenant": "b"},
    {"id": "webstuhl", "text": "Ein Webstuhl kreuzt Kette und Schuss.", "year": 2021, "lang": "de", "tenant": "b"},
    {"id": "a/b c?d", "text": "Shuttles carry the weft.", "title": "Shuttles", "secret_field": 1, "tenant": "b"},
]
# Every test of the server speaks to this name.
BASE_URL = "http://localhost"


def make_index(path: Path) -> Path:
    with plait.open(path, create=True, n_threads=1) as index:
        index.add(DOCUMENTS)
    return path


def config_of(path: Path, **changes: Any) -> ServeConfig:
    config = ServeConfig(
        indexes=(IndexConfig(name="fabrics", path=path),),
        state_dir=path.parent / "state",
        data_dir=path.parent / "data",
        mcp=False,
    )
    return replace(config, **changes)


@contextmanager
def serving(config: ServeConfig) -> Iterator[TestClient]:
    """A client of a running application."""
    app = create_app(config, ServeRuntime(config))
    with TestClient(app, base_url=BASE_URL, raise_server_exceptions=True) as client:
        yield client


def with_keys(config: ServeConfig, path: Path, **keys: Mapping[str, Any]) -> tuple[ServeConfig, dict[str, str]]:
    """The configuration with a file of keys: `reader={"scopes": ["read"]}`. Gives the keys by name."""
    made, file = {}, new_key_file()
    for name, options in keys.items():
        made[name], entry = make_key(name, **{"scopes": ["read"], **options})
        file = file.with_key(entry)
    write_keys(path, KeyFile(file.keys, file.secret))
    return replace(config, keys_file=path), made


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
