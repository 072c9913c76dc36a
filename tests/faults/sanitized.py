"""Runs the kernel tests, and the fuzzer of segment files, with a native core built under the sanitizers.

python -m faults.sanitized build/sanitize

The sanitizer libraries must be preloaded; `make sanitize` does that. An access outside of an array ends the process
with a report.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import plait

TESTS = Path(__file__).parents[1]


def use_core(folder: Path) -> None:
    """Loads the native core from this folder, before anything else in the process has loaded another one."""
    assert "plait._core" not in sys.modules, "another native core is already loaded"
    files = sorted(folder.resolve().glob("_core*.so"))
    assert len(files) == 1, f"{folder} has {len(files)} native cores; there must be one"
    spec = importlib.util.spec_from_file_location("plait._core", files[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["plait._core"] = module
    spec.loader.exec_module(module)
    setattr(plait, "_core", module)  # noqa: B010 -- as an import does


def copy_mapped_arrays() -> None:
    """Makes every array of a segment file a separate heap block. In a mapped file an access outside of an array would
    reach the next array and not be reported."""
    from plait.storage.segment_file import SegmentFile

    mapped = SegmentFile.array

    def array(self: SegmentFile, name: str, dtype: str, shape: tuple[int | None, ...]) -> Any:
        copied = mapped(self, name, dtype, shape).copy()
        copied.flags.writeable = False
        return copied

    setattr(SegmentFile, "array", array)  # noqa: B010


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("core", type=Path, help="the folder of the build")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    use_core(arguments.core)
    failed = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "", str(TESTS / "kernels")])
    if failed:
        sys.exit(int(failed))
    copy_mapped_arrays()
    from faults import fuzz  # loads the core, so not before use_core

    fuzz.run(arguments.rounds, arguments.seed)


if __name__ == "__main__":
    main()
