"""Models by hub name: what is fetched, and what each failure says. The hub is a server on this machine."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import pytest

from convert.hub_server import COMMIT, Hub, running
from plait.convert.hub import Snapshot, choose_files, fetch
from plait.convert.source import Source
from plait.encode.hub_models import HubName, parse_hub_name
from plait.errors import ConfigError, ModelError


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "served"
    for file, content in {
        "config.json": "{}",
        "model.safetensors": "weights" * 5000,
        "pytorch_model.bin": "pickle",
        "modeling_custom.py": "raise SystemExit",
        "1_Pooling/config.json": '{"pooling_mode": "mean"}',
        "2_Dense/pytorch_model.bin": "dense",
        "onnx/model.onnx": "graph",
    }.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content)
    with running(Hub({"org/model": folder}, gated={"org/gated"})) as served:
        yield served


def get(hub: Hub, tmp_path: Path, name: str = "org/model", **options: Any) -> Snapshot:
    parsed = parse_hub_name(name)
    assert parsed is not None
    return fetch(parsed, cache_dir=tmp_path / "cache", endpoint=hub.endpoint, **options)


def test_a_model_is_fetched_by_name(hub: Hub, tmp_path: Path) -> None:
    said: list[str] = []
    snapshot = get(hub, tmp_path, say=said.append)
    assert snapshot.commit == COMMIT
    assert "org/model" in said[0]
    assert "4 files" in said[0]
    source = Source.open(snapshot.folder, "org/model", snapshot.commit)
    assert source.text("config.json") == "{}"  # a link to ../../blobs
    assert source.origin == f"org/model@{COMMIT}"


def test_only_the_files_that_a_conversion_reads_are_fetched(hub: Hub, tmp_path: Path) -> None:
    get(hub, tmp_path)
    assert sorted(hub.downloads()) == [
        "1_Pooling/config.json",
        "2_Dense/pytorch_model.bin",
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("revision", ["main", "v1", COMMIT])
def test_a_revision_is_fetched_and_found_again_without_network(hub: Hub, tmp_path: Path, revision: str) -> None:
    first = get(hub, tmp_path, f"org/model@{revision}")
    offline = Hub(endpoint="http://127.0.0.1:9")
    said: list[str] = []
    assert get(offline, tmp_path, f"org/model@{revision}", say=said.append) == first
    assert "cannot be reached" in said[0]


def test_files_in_the_cache_are_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    get(hub, tmp_path)
    hub.requests.clear()
    get(hub, tmp_path)
    assert hub.downloads() == []


def test_a_broken_download_is_resumed(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.broken_after = 10_000
    snapshot = get(hub, tmp_path)
    assert (snapshot.folder / "model.safetensors").read_text() == "weights" * 5000
    assert any(wanted.startswith("bytes=10000-") for wanted in hub.ranges)


def test_a_name_that_does_not_exist(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no folder org/nothing, and no model org/nothing on the hub"):
        get(hub, tmp_path, "org/nothing")


def test_a_gated_model(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"org/gated is gated: accept its terms.*HF_TOKEN"):
        get(hub, tmp_path, "org/gated")


def test_the_token_comes_from_the_environment(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.models["org/gated"] = hub.models["org/model"]
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert get(hub, tmp_path, "org/gated").commit == COMMIT


def test_a_revision_that_does_not_exist(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="org/model has no revision 'v9'"):
        get(hub, tmp_path, "org/model@v9")


def test_no_network(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"the hub cannot be reached .* org/model is not in the cache"):
        get(Hub(endpoint="http://127.0.0.1:9"), tmp_path)


def test_offline_mode(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE forbids"):
        get(hub, tmp_path)
    assert hub.requests == []


def test_a_snapshot_with_a_missing_file_is_not_used_without_network(hub: Hub, tmp_path: Path) -> None:
    snapshot = get(hub, tmp_path)
    (snapshot.folder / "1_Pooling/config.json").unlink()
    with pytest.raises(ModelError, match="cannot be reached"):
        get(Hub(endpoint="http://127.0.0.1:9"), tmp_path)


def test_too_little_space_on_the_disk(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.convert.hub.shutil.disk_usage", lambda _path: type("Usage", (), {"free": 1000}))
    with pytest.raises(ModelError, match=r"needs 0 MB in .*, and its disk has 0 MB left; make room"):
        get(hub, tmp_path)
    assert hub.downloads() == []


def test_a_disk_that_fills_while_fetching(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_args: object, **_options: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fill)
    with pytest.raises(ModelError, match="the disk is full while fetching org/model"):
        get(hub, tmp_path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("BAAI/bge-m3", HubName("BAAI/bge-m3")),
        ("BAAI/bge-m3@v1", HubName("BAAI/bge-m3", "v1")),
        ("BAAI/bge-m3@refs/pr/3", HubName("BAAI/bge-m3", "refs/pr/3")),
        ("bert-base-uncased", HubName("bert-base-uncased")),
        ("./model", None),
        ("/tmp/model", None),
        ("a/b/c", None),
        ("../b", None),
        ("a/..", None),
        ("org/name@", None),
        ("", None),
    ],
)
def test_names_of_the_hub(text: str, name: HubName | None) -> None:
    assert parse_hub_name(text) == name


def test_two_revisions_for_one_name() -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        parse_hub_name("org/model@v1", "v2")
    assert parse_hub_name("org/model", "v2") == HubName("org/model", "v2")


def test_a_revision_is_not_a_path() -> None:
    with pytest.raises(ConfigError, match="is not a revision"):
        parse_hub_name("org/model@../../etc")


def test_shards_and_heads_and_graphs_are_chosen_by_what_a_repository_has() -> None:
    sharded = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    assert choose_files([*sharded, "pytorch_model.bin", "tf_model.h5"]) == sorted(sharded)
    m3 = ["config.json", "pytorch_model.bin", "colbert_linear.pt", "sparse_linear.pt", "onnx/model.onnx"]
    assert choose_files(m3) == sorted(m3[:4])
    graph = ["config.json", "model_optimized.onnx", "tokenizer.json", "a.py"]
    assert choose_files(graph) == sorted(graph[:3])
    exported = ["config.json", "onnx/model.onnx", "onnx/model_int8.onnx"]
    assert choose_files(exported) == ["config.json", "onnx/model.onnx"]
    assert choose_files(["checkpoint-500/model.safetensors", "optimizer.bin"]) == []
