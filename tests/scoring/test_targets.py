"""The choice of an instruction set."""

from __future__ import annotations

import pytest

from plait.errors import ConfigError
from plait.scoring.targets import available_targets, current_target, force_target


def test_scalar_is_always_there_and_the_best_is_in_use() -> None:
    assert available_targets()[0] == "scalar"
    assert current_target() == available_targets()[-1]


def test_a_forced_target_lasts_as_long_as_its_block() -> None:
    before = current_target()
    with force_target("scalar"):
        assert current_target() == "scalar"
    assert current_target() == before


def test_a_forced_target_ends_with_an_error_in_its_block() -> None:
    before = current_target()
    with pytest.raises(ZeroDivisionError), force_target("scalar"):
        1 / 0  # noqa: B018
    assert current_target() == before


def test_an_unknown_target_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'abacus'.*scalar"), force_target("abacus"):
        pass
