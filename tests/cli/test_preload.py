"""The head start of a search: taken by the search it was made for, and by no other."""

from __future__ import annotations

import pytest

from plait.cli import preload as early
from plait.encode import preload as ahead


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, int | None]]:
    """What was begun; nothing is really loaded."""
    begun: list[tuple[str | None, int | None]] = []

    class Loader:
        def __init__(self, model: str | None, *, n_threads: int | None) -> None:
            self.model, self.n_threads = model, n_threads
            begun.append((model, n_threads))

    monkeypatch.setattr(ahead, "ModelPreload", Loader)
    return begun


@pytest.mark.parametrize(
    ("arguments", "model", "n_threads"),
    [
        (["search", "ix", "text"], None, None),
        (["search", "ix", "text", "--model", "m", "--threads=2"], "m", 2),
        (["search", "ix", "text", "--threads", "many"], None, None),
    ],
)
def test_a_search_starts_to_load_its_model(
    started: list[tuple[str | None, int | None]], arguments: list[str], model: str | None, n_threads: int | None
) -> None:
    early.start(arguments)
    assert started == [(model, n_threads)]
    assert early.take(model, n_threads) is not None
    assert early.take(model, n_threads) is None


@pytest.mark.parametrize(
    "arguments",
    [[], ["info", "ix"], ["search", "--help"], ["search", "ix", "text", "--mode", "bm25"], ["search", "--mode=bm25"]],
)
def test_commands_without_a_model_load_none(started: list[tuple[str | None, int | None]], arguments: list[str]) -> None:
    early.start(arguments)
    assert started == []
    assert early.take(None, None) is None


@pytest.mark.usefixtures("started")
def test_a_preloaded_model_is_used_only_for_the_same_options() -> None:
    early.start(["search", "ix", "text"])
    assert early.take("other", None) is None


def test_a_loading_error_is_raised_when_the_model_is_used() -> None:
    from plait.errors import ModelError

    with pytest.raises(ModelError, match="no model 'nowhere'"):
        ahead.ModelPreload("nowhere").encoder()
