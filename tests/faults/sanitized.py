"""The tests of the kernels, and harmed segment files, with a native core that was built under the sanitizers.

    python -m faults.sanitized build/sanitize

Needs the libraries of the sanitizers loaded first; `make sanitize` does that. A step outside of an array ends the
process with a report of where it was taken.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import plait
from faults import fuzz

TESTS = Path(__file__).parents[1]


def use_core(folder: Path) -> None:
    """From now on in this process, the native core is the one in this folder. Before anything has loaded another."""
    assert "plait._core" not in sys.modules, "the core was loaded before it could be replaced"
    files = sorted(folder.resolve().glob("_core*.so"))
    assert len(files) == 1, f"{folder} has {len(files)} native cores; one is wanted"
    spec = importlib.util.spec_from_file_location("plait._core", files[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["plait._core"] = module
    spec.loader.exec_module(module)
    setattr(plait, "_core", module)  # noqa: B010 -- as importing it would


def keep_arrays_apart() -> None:
    """From now on in this process, each array of a segment file is a block of its own: within a mapped file, a step
    outside of an array lands in the next one and is not seen."""
    from plait.storage.segment_file import SegmentFile

    mapped = SegmentFile.array

    def array(self: SegmentFile, name: str, dtype: str, shape: tuple[int | None, ...]) -> Any:
        own = mapped(self, name, dtype, shape).copy()
        own.flags.writeable = False
        return own

    setattr(SegmentFile, "array", array)  # noqa: B010


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("core", type=Path, help="the folder of the build")
    asked.add_argument("--rounds", type=int, default=500)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    use_core(given.core)
    failed = pytest.main(["-q", "-x", "-p", "no:cacheprovider", str(TESTS / "kernels")])
    if failed:
        sys.exit(int(failed))
    keep_arrays_apart()
    fuzz.run(given.rounds, given.seed)


if __name__ == "__main__":
    main()
