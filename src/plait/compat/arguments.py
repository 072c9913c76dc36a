"""Arguments of other libraries: those that plait cannot honour are refused, or warned about if no result depends on
them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plait.checks import shown
from plait.encode.load import CPU, CUDA
from plait.errors import ConfigError

PACKAGE = Path(__file__).parent
OnBatch = Callable[[int, int], None]


class CompatWarning(UserWarning):
    """An argument of another library has no effect here. Results do not depend on it."""


def refuse(name: str, value: object, *, default: object, why: str) -> None:
    """ConfigError for an argument that differs from its default. `why` says what to do instead."""
    if not _is_default(value, default):
        raise ConfigError(f"{name} is {shown(value)}; {why}")


def warn_unused(name: str, value: object, *, default: object, why: str) -> None:
    """Warns of an argument that differs from its default and has no effect."""
    if not _is_default(value, default):
        warn(f"{name} has no effect: {why}")


def warn(message: str) -> None:
    """A `CompatWarning` at the line that called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, CompatWarning, stacklevel=level)


def refuse_unknown(call: str, keywords: Mapping[str, object], known: Mapping[str, str] | None = None) -> None:
    """ConfigError for the keywords that the origin passes on to libraries that plait does not use."""
    for name in keywords:
        why = (known or {}).get(name, f"plait's {call} does not take it; leave it out")
        raise ConfigError(f"{name} is {shown(keywords[name])}; {why}")


def device_of(name: str, device: object) -> str | None:
    """`cpu` or `cuda` from a device in the words of torch. None stays None: plait then uses the processor."""
    if device is None:
        return None
    kind = str(device).partition(":")[0]
    if kind in (CPU, CUDA):
        return kind
    raise ConfigError(f"{name} is {shown(device)}; plait runs models on {CPU} and {CUDA}")


def one_device(name: str, devices: object) -> str | None:
    """The device of a list of devices. plait runs a model once, with all processors: several are refused."""
    if isinstance(devices, list | tuple):
        if len({device_of(name, one) for one in devices}) != 1:
            raise ConfigError(f"{name} is {shown(devices)}; plait runs a model on one device: give one of them")
        return device_of(name, devices[0])
    if isinstance(devices, int) and not isinstance(devices, bool):
        return CUDA
    return device_of(name, devices)


@contextmanager
def progress_bar(show: bool, label: str) -> Iterator[OnBatch | None]:
    """A bar on standard error while texts are encoded; None if it is not to be shown."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _is_default(value: Any, default: object) -> bool:
    return value is default or (type(value) is type(default) and value == default)
