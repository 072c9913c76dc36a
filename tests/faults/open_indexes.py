"""The memory of many small indexes in one process, each of which has encoded something.

    python -m faults.open_indexes --indexes 20

Prints the resident memory with one index and with all; ends with 1 if an index costs more than 2 MB on average.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import plait

MAX_MB_EACH = 2.0


def resident_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def measure(n_indexes: int) -> tuple[float, float]:
    """Resident megabytes with one index open, and with all."""
    with tempfile.TemporaryDirectory(prefix="plait-") as folder, ExitStack() as opened:
        with_one = 0.0
        for number in range(n_indexes):
            index = opened.enter_context(plait.open(Path(folder, str(number)), create=True))
            index.add([{"id": "a", "text": "wool is warm"}])
            assert index.search("wool")[0].id == "a"
            with_one = with_one or resident_mb()
        return with_one, resident_mb()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--indexes", type=int, default=20)
    n_indexes = parser.parse_args().indexes
    with_one, with_all = measure(n_indexes)
    print(f"1 open index: {with_one:.0f} MB resident; {n_indexes} open indexes: {with_all:.0f} MB")
    if with_all - with_one > MAX_MB_EACH * (n_indexes - 1):
        sys.exit("each index loads a model of its own")


if __name__ == "__main__":
    main()
