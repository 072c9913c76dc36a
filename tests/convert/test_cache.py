"""Models by hub name: fetched and converted when they are first named, used from the cache later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants, file_download

import plait
from convert.conftest import CHECKPOINTS
from convert.hub_server import COMMIT, Hub, running
from plait.convert.cache import convert_named, remove_cached
from plait.encode.hub_models import HubName, cached_models, hub_name, models_home
from plait.encode.load import LazyEncoder, find_model, is_trusted_name, load_model
from plait.errors import EncoderMismatchError, ModelError
from plait.rerank.cross_encoder import find_cross, trusted_cross
from plait.rerank.reranker import load_reranker

DOCUMENTS = [{"id": "a", "text": "water boils at a hundred degrees"}, {"id": "b", "text": "the price of copper fell"}]


pytestmark = pytest.mark.usefixtures("hub", "home")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with small models; the caches of huggingface_hub and of plait belong to the test."""
    models = {"org/tiny": CHECKPOINTS / "st-bert-mean", "org/cross": CHECKPOINTS / "st-cross-bert"}
    with running(Hub(models)) as served:
        # huggingface_hub reads the environment when it is imported.
        monkeypatch.setattr(constants, "ENDPOINT", served.endpoint)
        template = f"{served.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        for module in (constants, file_download):
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
        yield served


def disconnect(hub: Hub) -> None:
    """The hub answers nothing that it could serve."""
    hub.models.clear()
    hub.requests.clear()


def test_a_model_is_converted_when_it_is_first_named(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with plait.open(tmp_path / "index", model="org/tiny", create=True) as index:
        index.add(DOCUMENTS)
        assert index.info().properties["model"] == f"org/tiny@{COMMIT}"
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "org/tiny is not in the cache; it is fetched and converted once, to int8" in said
    assert any("is ready" in line for line in said)
    assert [model.name for model in cached_models()] == ["org/tiny"]
    disconnect(hub)
    with plait.open(tmp_path / "other", model="org/tiny", create=True) as index:
        index.add(DOCUMENTS)
    assert hub.requests == []


def test_an_index_finds_its_model_in_the_cache_without_network(hub: Hub, tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", model="org/tiny", create=True) as index:
        index.add(DOCUMENTS)
    disconnect(hub)
    with plait.open(tmp_path / "index") as index:
        assert index.search("water boils at a hundred degrees", k=1, mode="dense")[0].id == "a"
    assert hub.requests == []


def test_an_index_of_a_stranger_fetches_nothing(hub: Hub, tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", model="org/tiny", create=True) as index:
        index.add(DOCUMENTS)
    remove_cached("org/tiny")
    hub.requests.clear()
    with plait.open(tmp_path / "index") as index:
        assert index.search("copper", k=1, mode="bm25")[0].id == "b"
        with pytest.raises(ModelError, match=r"names the model 'org/tiny@.*fetches no model because an index names it"):
            index.search("copper", k=1, mode="dense")
    assert hub.requests == []
    with plait.open(tmp_path / "index", model="org/tiny") as index:  # the caller names it
        assert index.search("water boils at a hundred degrees", k=1, mode="dense")[0].id == "a"


def test_a_model_that_vanishes_from_the_cache_is_not_fetched_for_an_index(hub: Hub, tmp_path: Path) -> None:
    convert_named(HubName("org/tiny"))
    lazy = LazyEncoder(None, None, precision=None, n_threads=1)
    fingerprint = load_model("org/tiny").fingerprint
    lazy.bind(tmp_path, fingerprint=fingerprint, model=f"org/tiny@{COMMIT}")
    remove_cached("org/tiny")
    hub.requests.clear()
    with pytest.raises(ModelError, match="there is no model"):
        lazy.get()
    assert hub.requests == []


def test_an_index_of_another_model_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.models["org/second"] = CHECKPOINTS / "st-bert-cls"
    with plait.open(tmp_path / "index", model="org/tiny", create=True) as index:
        index.add(DOCUMENTS)
    with pytest.raises(EncoderMismatchError):
        plait.open(tmp_path / "index", model="org/second")


def test_a_revision_is_converted_beside_the_others(hub: Hub) -> None:
    folder = find_model("org/tiny@v1")
    assert find_model(f"org/tiny@{COMMIT}") == folder
    disconnect(hub)
    assert find_model("org/tiny@v1") == folder
    with pytest.raises(ModelError, match="no model org/tiny on the hub"):
        find_model("org/tiny@main")


def test_each_precision_is_converted_by_itself() -> None:
    int8, fp32 = find_model("org/tiny"), find_model("org/tiny", precision="fp32")
    assert int8 != fp32
    assert load_model("org/tiny", precision="fp32").fingerprint == load_model("org/tiny").fingerprint
    assert [model.precision for model in cached_models()] == ["fp32", "int8"]


def test_a_reranker_by_name(tmp_path: Path) -> None:
    reranker = load_reranker("org/cross", blend=0.0)
    assert reranker.scorer.score([("a", "b")]).shape == (1,)
    assert trusted_cross(tmp_path, "org/cross") == str(find_cross("org/cross"))
    with pytest.raises(ModelError, match="loads no folder because an index names it"):
        trusted_cross(tmp_path, "org/unknown")


def test_a_reranker_is_no_encoder() -> None:
    with pytest.raises(ModelError, match="is the card of a cross-encoder"):
        load_model("org/cross")


def test_a_failed_conversion_leaves_nothing_in_the_cache(hub: Hub, tmp_path: Path, home: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in (CHECKPOINTS / "st-bert-mean").iterdir():
        if file.is_file():
            (broken / file.name).write_bytes(file.read_bytes()[: 900 if file.suffix == ".safetensors" else None])
    hub.models["org/broken"] = broken
    with pytest.raises(ModelError):
        find_model("org/broken")
    assert cached_models() == []
    assert [path for path in home.rglob("*") if path.is_file() and path.name != ".lock"] == []


def test_a_name_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no folder org/nothing, and no model org/nothing on the hub"):
        plait.open(tmp_path / "index", model="org/nothing", create=True)
    assert not (tmp_path / "index").exists()


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.convert.packages.find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(
        ModelError, match=r"is not in the cache .*needs torch; install with: pip install 'plait\[convert\]'"
    ):
        find_model("org/tiny")


def test_a_folder_of_the_same_name_comes_first(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = find_model("org/tiny")
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "tiny").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    hub.requests.clear()
    assert find_model("org/tiny") == Path("org/tiny")


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLAIT_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"the cache of models cannot be written: .*set PLAIT_HOME"):
        find_model("org/tiny")


def test_names_in_an_index_cannot_leave_the_cache() -> None:
    for name in ("../../etc/passwd", "org/../x", "a/b/c", "org/tiny@../..", "org/tiny@", "/abs/path", "", None, 3):
        called = hub_name(name)
        assert called is None or ".." not in str(called)
        assert not (isinstance(name, str) and is_trusted_name(name))


def test_two_processes_convert_a_model_once(hub: Hub, tmp_path: Path, home: Path) -> None:
    code = "from plait.encode.load import find_model; print(find_model('org/tiny'))"
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(tmp_path / "hf"),
        "PLAIT_HOME": str(home),
    }
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert len(cached_models()) == 1
    assert sum(b"is ready" in stderr for _, stderr in answers) == 1
    assert hub.downloads().count("model.safetensors") == 1


def test_a_draft_of_a_killed_process_is_removed() -> None:
    draft = models_home() / "org--tiny" / COMMIT / "int8-v1.new-1"
    draft.mkdir(parents=True)
    (draft / "model.onnx").write_bytes(b"half")
    find_model("org/tiny")
    assert not draft.exists()


def test_removing_a_model() -> None:
    find_model("org/tiny")
    find_model("org/tiny", precision="fp32")
    assert len(remove_cached("org/tiny")) > 0
    assert cached_models() == []
    with pytest.raises(ModelError, match="org/tiny is not in the cache"):
        remove_cached("org/tiny")
    with pytest.raises(ModelError, match="is not the name of a converted model"):
        remove_cached("tiny")


def test_a_conversion_of_an_older_plait_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = find_model("org/tiny")
    monkeypatch.setattr("plait.encode.hub_models.CONVERSION", 2)
    second = find_model("org/tiny")
    assert first != second
    assert json.loads((second / "plait.json").read_text())["name"] == "org/tiny"
