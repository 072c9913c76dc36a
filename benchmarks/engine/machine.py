"""The machine of a run, for the report."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import plait
from plait.scoring.cpu import available_targets

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


def processor_times() -> tuple[int, int]:
    """Ticks since boot that other virtual machines took from these processors (steal), and all ticks; zeros where the
    system does not report them."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0, 0
    ticks = [int(field) for field in path.read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def machine() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "plait": plait.__version__,
        "targets": available_targets(),
    }
    path = Path("/proc/cpuinfo")
    if path.exists():
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        named = {name.strip(): value.strip() for name, value in lines.items()}
        facts["cpu"] = named.get("model name", "unknown")
        facts["flags"] = [flag for flag in FLAGS if flag in named.get("flags", "").split()]
    return facts
