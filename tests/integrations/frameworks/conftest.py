"""The tests of this folder need the frameworks. `make test-frameworks` runs them; `make test` says that it did not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Nothing may be fetched, and no usage reported, by a test.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "NUMBA_DISABLE_JIT": "1",  # ranx compiles at the first call, which takes longer than the tests
}


def has_frameworks(config: pytest.Config) -> bool:
    """Whether this is the run of `make test-frameworks`, in which a framework that is missing is a failure."""
    return config.inipath is not None and config.inipath.parent == HERE


def pytest_configure(config: pytest.Config) -> None:
    if has_frameworks(config):  # otherwise the tests of other folders would see these variables
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_test = collection_path.parent == HERE and collection_path.name.startswith("test_")
    return True if is_test and not has_frameworks(config) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of a framework's own suites in the JUnit file; docs/frameworks_page.py makes a table of them."""
    for item in items:
        if suite := suite_of(item):
            item.user_properties.append(("suite", suite))


def suite_of(item: pytest.Item) -> str:
    """The class of a framework that a test belongs to, also if it is overridden here; empty if it is plait's."""
    if not isinstance(item, pytest.Function) or item.cls is None:
        return ""
    for base in item.cls.__mro__:
        if item.originalname in vars(base) and base.__module__.startswith(("haystack.", "langchain_tests.")):
            return f"{base.__module__}.{base.__qualname__}"
    return ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not has_frameworks(config):
        n_files = len(list(HERE.glob("test_*.py")))
        terminalreporter.write_line(
            f"NOT RUN: {n_files} files of tests/integrations/frameworks, which need LangChain and others: "
            f"make test-frameworks"
        )
