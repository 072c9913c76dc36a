"""Which instruction set the kernels use. The best one is found without being asked.

The environment variable PLAIT_TARGET names another, for the whole process: it is read when a kernel is first used, and
a name that `available_targets` does not have is a ConfigError there. Forcing one for a while is for tests and
benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from plait import _core
from plait.errors import ConfigError


def available_targets() -> list[str]:
    """The instruction sets that this build has and this machine runs: "scalar" first, the best last.

    The first call asks the processor. Where that has AMX, a small product is tried in a child process: some machines
    promise AMX and fault.
    """
    return _core.available_targets()


def current_target() -> str:
    """The instruction set in use. Raises ConfigError where PLAIT_TARGET names none that is available."""
    return _core.current_target()


@contextmanager
def force_target(name: str) -> Iterator[None]:
    """Every kernel in the process uses this instruction set until the block ends. Not for two threads at once: they
    would undo each other."""
    before = current_target()
    if not _core.use_target(name):
        raise ConfigError(f"there is no target {name!r} here; this machine has {', '.join(available_targets())}")
    try:
        yield
    finally:
        _core.use_target(before)
