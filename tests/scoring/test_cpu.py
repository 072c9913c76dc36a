"""The choice of an instruction set."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from plait.errors import ConfigError
from plait.scoring.cpu import available_targets, current_target, force_target


def test_scalar_is_always_there() -> None:
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


def test_an_unknown_target_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'abacus'.*scalar"), force_target("abacus"):
        pass


def in_a_process_of_its_own(script: str, target: str | None = None) -> subprocess.CompletedProcess[str]:
    """Of two processes one is the test's, which has used kernels already; the variable is read at first use."""
    environment = {name: value for name, value in os.environ.items() if name != "PLAIT_TARGET"}
    if target is not None:
        environment["PLAIT_TARGET"] = target
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)


SHOW = "from plait.scoring.cpu import current_target; print(current_target())"


@pytest.mark.parametrize("target", available_targets())
def test_the_environment_names_the_target(target: str) -> None:
    assert in_a_process_of_its_own(SHOW, target).stdout.split() == [target]


@pytest.mark.parametrize("target", [None, ""])
def test_without_a_name_in_the_environment_the_best_is_in_use(target: str | None) -> None:
    assert in_a_process_of_its_own(SHOW, target).stdout.split() == available_targets()[-1:]


def test_an_unknown_target_in_the_environment_is_refused_by_the_first_kernel_with_those_there_are() -> None:
    script = "import numpy as np; from plait.scoring import residual; residual.pack_query(np.zeros((1, 8), np.int8))\n"
    script += "residual.narrow_table(np.zeros((1, 8), np.int16), np.zeros(8, np.int16), 1)"
    done = in_a_process_of_its_own(script, "abacus")
    assert done.returncode != 0
    assert f'ConfigError: PLAIT_TARGET is "abacus"; this machine has {", ".join(available_targets())}.' in done.stderr
