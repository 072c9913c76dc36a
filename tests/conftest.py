"""What holds for every test."""

from __future__ import annotations

import os
import signal

# A shell that starts the tests in the background ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before numpy is imported. The matrices of tests are small, and threads that wait for each other on a busy machine make
# a decomposition of a hundred rows a hundred times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pathlib import Path

import pytest

from plait.storage.store import Store
from storage.samples import add, fabrics, make_store


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    """An index without documents."""
    return make_store(tmp_path / "index")


@pytest.fixture
def store(empty: Store) -> Store:
    """An index of four documents, two passages each, in one segment."""
    add(empty, fabrics())
    return empty
