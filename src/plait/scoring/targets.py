"""Which instruction set the kernels use. The best one is found without being asked; forcing another is for tests and
benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from plait import _core
from plait.errors import ConfigError


def available_targets() -> list[str]:
    """The instruction sets that this build has and this machine runs: "scalar" first, the best last."""
    return _core.available_targets()


def current_target() -> str:
    """The instruction set in use."""
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
