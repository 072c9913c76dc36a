"""Progress bars: drawn on a terminal, absent elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from plait.cli.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("total", [10, None])
def test_a_terminal_shows_count_and_rate(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress("indexing", "documents", total=total) as update:
        update(5, 1234)
    assert "indexing" in screen.getvalue()
    assert "1,234 documents" in screen.getvalue()
    assert ("left" in screen.getvalue()) == (total is not None)


def test_nothing_is_drawn_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with progress("indexing", "documents", total=10) as update:
        update(5, 5)
    assert file.getvalue() == ""
