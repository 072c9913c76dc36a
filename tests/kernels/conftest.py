"""Every kernel test runs once for each instruction set that this machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plait.scoring.cpu import available_targets, force_target


@pytest.fixture(params=available_targets(), autouse=True)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    with force_target(request.param):
        yield request.param
