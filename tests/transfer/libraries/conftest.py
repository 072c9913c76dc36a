"""The tests of this folder need other databases. `make test-transfer` runs them; `make test` says that it did not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")  # of Chroma: no usage is reported by a test


def has_libraries(config: pytest.Config) -> bool:
    """Whether this is the run of `make test-transfer`, in which a library that is missing is a failure."""
    return config.inipath is not None and config.inipath.parent == HERE


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_test = collection_path.parent == HERE and collection_path.name.startswith("test_")
    return True if is_test and not has_libraries(config) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not has_libraries(config):
        n_files = len(list(HERE.glob("test_*.py")))
        terminalreporter.write_line(
            f"NOT RUN: {n_files} files of tests/transfer/libraries, which need LanceDB and others: make test-transfer"
        )
