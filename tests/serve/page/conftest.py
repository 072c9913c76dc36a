"""What the tests of the page share: two indexes, a server and a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.serve.config import IndexConfig, ServeConfig
from serve.page.browser import FLAGS, ROOT, Visit, chromium, missing, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Texts that would do something if the page took them for HTML.
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>window.owned = true</script><b>bold</b>"
HOSTILE = [
    {"id": EVIL, "title": f"Tide {EVIL}", "text": f"The tide of the sea {EVIL} rises.", "mark": EVIL, EVIL: "field"},
    {"id": "../../v1/indexes", "title": "", "text": "The sea rises twice a day. " * 60, "tags": ["sea", EVIL]},
    {"id": "..", "title": "Two dots", "text": "The sea is salt."},
    {
        "id": "emoji",
        "title": "🌊🌊 sea",
        "text": "🌊😀🏄‍♀️ The sea and 𝒯𝒽𝑒 waves of the sea.",
        "mark": "javascript:alert(1)",
    },
    {"id": "rtl", "title": "\u202eesrever", "text": "البحر كبير والموج عال. The sea is wide.", "mark": "\u202e"},
    {"id": "proto", "title": "__proto__", "text": "A sea of names.", "__proto__": "x", "constructor": 1},
    {"id": "long", "title": "W" * 3000, "text": "sea" + "x" * 20_000, "deep": {"a": {"b": [1, {"c": 2}]}}},
]


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The example articles, and an index of hostile documents."""
    folder = tmp_path_factory.mktemp("indexes")
    lines = (ROOT / "examples" / "articles.jsonl").read_text(encoding="utf-8").splitlines()
    collections = {"articles": [json.loads(line) for line in lines], "hostile": HOSTILE}
    for name, documents in collections.items():
        with plait.open(folder / name, create=True, n_threads=1) as index:
            index.add(documents)
    return {name: folder / name for name in collections}


@pytest.fixture(scope="module")
def config(indexes: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> ServeConfig:
    served = tuple(IndexConfig(name=name, path=path) for name, path in indexes.items())
    return ServeConfig(indexes=served, state_dir=tmp_path_factory.mktemp("state"), mcp=False)


@pytest.fixture(scope="module")
def base(config: ServeConfig) -> Iterator[str]:
    with running(config) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("playwright")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def visits(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens pages; nothing may have gone wrong in them."""
    opened: list[Visit] = []

    def visit(base: str, **options: Any) -> Visit:
        opened.append(Visit(browser, base, **options))
        return opened[-1]

    yield visit
    for one in opened:
        one.context.close()
    assert [problem for one in opened for problem in one.problems] == []


@pytest.fixture
def visit(visits: Callable[..., Visit], base: str) -> Visit:
    return visits(base)
