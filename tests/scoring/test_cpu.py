"""The choice of an instruction set."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from plait.errors import ConfigError
from plait.scoring.cpu import available_targets, current_target, force_target


def test_scalar_is_always_available() -> None:
    assert available_targets()[0] == "scalar"


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


def test_an_unknown_target_is_refused_with_the_available_ones() -> None:
    with pytest.raises(ConfigError, match=r"'abacus'.*scalar"), force_target("abacus"):
        pass


def run_in_new_process(script: str, target: str | None = None) -> subprocess.CompletedProcess[str]:
    """PLAIT_TARGET is read when a kernel is first used, and this process has used kernels already."""
    environment = {name: value for name, value in os.environ.items() if name != "PLAIT_TARGET"}
    if target is not None:
        environment["PLAIT_TARGET"] = target
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)


SHOW = "from plait.scoring.cpu import current_target; print(current_target())"


@pytest.mark.parametrize("target", available_targets())
def test_the_environment_names_the_target(target: str) -> None:
    assert run_in_new_process(SHOW, target).stdout.split() == [target]


@pytest.mark.parametrize("target", [None, ""])
def test_without_a_name_in_the_environment_the_best_is_in_use(target: str | None) -> None:
    assert run_in_new_process(SHOW, target).stdout.split() == available_targets()[-1:]


def test_an_unknown_target_in_the_environment_is_refused_at_first_use() -> None:
    script = "import numpy as np; from plait.scoring import residual; residual.pack_query(np.zeros((1, 8), np.int8))\n"
    script += "residual.narrow_table(np.zeros((1, 8), np.int16), np.zeros(8, np.int16), 1)"
    done = run_in_new_process(script, "abacus")
    assert done.returncode != 0
    assert f'ConfigError: PLAIT_TARGET is "abacus"; this machine has {", ".join(available_targets())}.' in done.stderr
