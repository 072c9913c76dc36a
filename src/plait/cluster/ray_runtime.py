"""Starting Ray, the error if it is not installed, and errors of plait inside errors of Ray."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from plait.errors import ConfigError, PlaitError


def import_ray() -> Any:
    """The module `ray`; ConfigError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"this needs Ray ({error}); pip install 'plait[cluster]'") from None
    return ray


def connect(address: str | None, *, n_cpus: int | None = None) -> Any:
    """Joins the Ray cluster at `address`, or starts one on this machine; a cluster that this process has joined stays.

    Ray opens ports on every address of a node. Protect them: see docs/guides/cluster.md.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"log_to_driver": False, "include_dashboard": False} if address is None else {}
    if address is None and n_cpus is not None:
        options["num_cpus"] = n_cpus
    try:
        ray.init(address=address, logging_level="warning", **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise ConfigError(f"Ray could not be reached {where}: {error!s:.300}") from error
    return ray


def own_error(error: Any) -> PlaitError | None:
    """The error of plait inside an error of Ray; None if there is none."""
    cause = error
    seen: Sequence[Any] = ()
    while cause is not None and cause not in seen:
        seen = [*seen, cause]
        if isinstance(cause, PlaitError) and not hasattr(cause, "traceback_str"):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return None
