"""A server in a thread, and a browser that walks its page."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import uvicorn

from plait.serve.app import create_app
from plait.serve.config import ServeConfig
from plait.serve.runtime.runtime import ServeRuntime

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[3]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
# Of a machine without a display; `--no-sandbox` because CI runs as root.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


def missing(what: str) -> NoReturn:
    """Skips, and says how to install it; fails if `make test-page` runs the tests, which installs everything."""
    message = f"{what} is not installed, so the page was not walked; run: make test-page"
    if os.environ.get("PLAIT_TEST_PAGE"):
        pytest.fail(message)
    pytest.skip(message)


def chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None) or missing("chromium")


@contextmanager
def running(config: ServeConfig) -> Iterator[str]:
    """The address of a server of this configuration, on a free port."""
    server = uvicorn.Server(uvicorn.Config(create_app(config, ServeRuntime(config)), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert time.monotonic() < deadline, "the server did not start in a minute"
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join(30)


class Visit:
    """A page of the server in a browser, with everything that went wrong in it."""

    def __init__(self, browser: Browser, base: str, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.base, self.problems, self.requests = base, list[str](), list[str]()
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", lambda message: self._see(message.type, message.text))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _dismiss(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _see(self, kind: str, text: str) -> None:
        # The browser reports every status from 400 on; tests of errors look at the page.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.problems.append(f"{kind}: {text}")

    def open(self, address: str = "", wait: str = "main > *") -> Page:
        self.page.goto(self.base + address)
        self.page.wait_for_selector(wait)
        return self.page

    def ids(self, within: str = ".hits") -> list[str]:
        result: list[str] = self.page.eval_on_selector_all(
            f"{within} > li[data-id]", "items => items.map(item => item.dataset.id)"
        )
        return result

    def wait_for_ids(self, expected: Sequence[str], within: str = ".hits") -> None:
        """Waits until these are the first results."""
        self.page.wait_for_function(
            """([within, ids]) => {
                const shown = [...document.querySelectorAll(within + ' > li[data-id]')].map(item => item.dataset.id)
                return ids.every((id, n) => shown[n] === id)
            }""",
            arg=[within, list(expected)],
        )

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """An answer of the API, to compare the page with."""
        answer = self.context.request.post(self.base + path, data=dict(body))
        assert answer.ok, answer.text()
        return answer.json()

    def get(self, path: str) -> Any:
        answer = self.context.request.get(self.base + path)
        assert answer.ok, answer.text()
        return answer.json()

    def overflow(self) -> int:
        """Pixels that the page is wider than the window."""
        pixels: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return pixels

    def serious_findings(self) -> list[str]:
        """What axe-core finds, of impact serious or critical."""
        if not AXE.is_file():
            missing("axe-core")
        # A script of the tests, not of the page: evaluated, since the policy of the page refuses other scripts.
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        result = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:160]} {one['nodes'][0]['failureSummary'][:300]}"
            for one in result["violations"]
            if one["impact"] in ("serious", "critical")
        ]
