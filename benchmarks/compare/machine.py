"""What a run was made on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import plait
from plait.scoring.targets import available_targets

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


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
