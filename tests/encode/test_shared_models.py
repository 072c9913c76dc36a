"""Indexes of one process with the same model share one session, which is freed when the last of them is closed."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.encode import load
from plait.encode.load import BUNDLED, DEFAULT_MODEL, LazyEncoder, shared_encoder
from plait.encode.shared_models import _loaded

FILES = ("plait.json", "tokenizer.json", "model.int8.onnx")


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The onnxruntime sessions that were opened."""
    gc.collect()
    opened: list[Any] = []
    open_session = load.open_session

    def counted(*given: Any, **options: Any) -> Any:
        session = open_session(*given, **options)
        opened.append(weakref.ref(session))
        return session

    monkeypatch.setattr(load, "open_session", counted)
    return opened


def make_index(path: Path, **options: Any) -> plait.Index:
    index = plait.open(path, create=True, n_threads=1, **options)
    index.add([{"id": "a", "text": "wool"}])
    return index


def test_two_indexes_share_one_session_and_the_last_frees_it(tmp_path: Path, sessions: list[Any]) -> None:
    first, second = make_index(tmp_path / "first"), make_index(tmp_path / "second")
    assert len(sessions) == 1
    assert first.encoder is second.encoder
    first.close()
    assert second.search("wool")[0].id == "a"
    second.close()
    gc.collect()
    assert sessions[0]() is None


def test_threads_that_need_a_model_at_once_load_it_once(tmp_path: Path, sessions: list[Any]) -> None:
    indexes = [plait.open(tmp_path / str(number), create=True, n_threads=1) for number in range(4)]
    with ThreadPoolExecutor(8) as pool:
        encoders = list(pool.map(lambda index: index.encoder, indexes * 2))
    assert len(sessions) == len(set(map(id, encoders))) == 1
    for index in indexes:
        index.close()


def test_other_threads_or_files_need_another_session(tmp_path: Path, sessions: list[Any]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in FILES:
        shutil.copy(BUNDLED / DEFAULT_MODEL / name, folder / name)
    encoders = [shared_encoder(n_threads=1), shared_encoder(n_threads=2), shared_encoder(folder, n_threads=1)]
    (folder / "tokenizer.json").touch()
    encoders.append(shared_encoder(folder, n_threads=1))
    card = json.loads((folder / "plait.json").read_text())
    (folder / "plait.json").write_text(json.dumps({**card, "name": "other"}))
    encoders.append(shared_encoder(folder, n_threads=1))
    assert len(sessions) == len(set(map(id, encoders))) == len(encoders)


def test_a_failed_load_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise plait.ModelError("no memory")

    source = LazyEncoder(None, None, precision=None, n_threads=3)
    with monkeypatch.context() as patch:
        patch.setattr(load, "load_model", fail)
        with pytest.raises(plait.ModelError, match="no memory"):
            source.get()
    assert source.get().fingerprint == source.fingerprint()


def test_a_released_source_still_gives_its_encoder_and_keeps_none(sessions: list[Any]) -> None:
    source = LazyEncoder(None, None, precision=None, n_threads=3)
    source.release()  # as an index that is closed during a search
    assert source.get().encode_queries(["wool"]).dense is not None
    gc.collect()
    assert [session() for session in sessions] == [None]
    assert not any(key[-1] == 3 for key in list(_loaded))


def test_indexes_share_their_reranker(tmp_path: Path, sessions: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.rerank.cross_encoder.open_session", load.open_session)
    indexes = [make_index(tmp_path / str(number)) for number in range(2)]
    for index in indexes:
        assert index.search("wool", rerank=True)[0].id == "a"
    assert len(sessions) == 2  # the encoder and the cross-encoder
    for index in indexes:
        index.close()
