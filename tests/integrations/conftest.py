"""The tests of this folder need the frameworks. `make test-frameworks` runs them; `make test` says that it did not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# These run everywhere: they need no framework.
WITHOUT_FRAMEWORKS = {"test_without_frameworks.py"}

# Nothing may be fetched, and no usage reported, by a test.
for name, value in {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
}.items():
    os.environ.setdefault(name, value)


def has_frameworks(config: pytest.Config) -> bool:
    """Whether this is the run of `make test-frameworks`, in which a framework that is missing is a failure."""
    return config.inipath is not None and config.inipath.parent == HERE


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    needs_framework = collection_path.parent == HERE and collection_path.name not in WITHOUT_FRAMEWORKS
    return True if needs_framework and collection_path.is_file() and not has_frameworks(config) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    files = sorted(file.name for file in HERE.glob("test_*.py") if file.name not in WITHOUT_FRAMEWORKS)
    if not has_frameworks(config):
        terminalreporter.write_line(
            f"NOT RUN: {len(files)} files of tests/integrations, which need LangChain and others: make test-frameworks"
        )
