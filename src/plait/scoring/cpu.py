"""The instruction set that the kernels use: the best one that the machine has.

The environment variable PLAIT_TARGET chooses another one for the whole process. It is read when a kernel is first used;
a name that is not in `available_targets` is a ConfigError. `force_target` is for tests and benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from plait import _core
from plait.errors import ConfigError


def available_targets() -> list[str]:
    """The instruction sets that this build has and this machine can run: "scalar" first, the best last.

    The first call asks the processor. If it reports AMX, a small product is tried in a child process, because some
    machines report AMX and fault on it.
    """
    return _core.available_targets()


def current_target() -> str:
    """The instruction set in use. Raises ConfigError if PLAIT_TARGET is not an available one."""
    return _core.current_target()


@contextmanager
def force_target(name: str) -> Iterator[None]:
    """All kernels of the process use this instruction set until the block ends. Not for two threads at once."""
    before = current_target()
    if not _core.use_target(name):
        raise ConfigError(f"unknown target {name!r}; this machine has {', '.join(available_targets())}")
    try:
        yield
    finally:
        _core.use_target(before)
