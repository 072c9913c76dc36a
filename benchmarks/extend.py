"""A corpus of any size made from real token vectors, for `engine.py`. What it is good for: `compare/extension.py`.

    python benchmarks/extend.py --vectors vectors --from-passages 50000 --to million

Without --write the folder holds only how its passages are made, and each reader makes them anew: a million passages
of 125 vectors are 32 GB as float16. With --write they are made once, a shard at a time.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

from compare.extension import EXTENSION, Extension
from embeddings import SHARD, shard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True, help="a folder of embeddings.py")
    parser.add_argument("--from-passages", type=int, required=True, help=f"a multiple of {SHARD:,}")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=int, help="vectors of a passage; the rest is cut off")
    parser.add_argument("--write", type=int, metavar="PASSAGES", help="make the first of them now")
    arguments = parser.parse_args()
    if arguments.from_passages < SHARD or arguments.from_passages % SHARD:
        parser.error(f"--from-passages is {arguments.from_passages}; it must be a multiple of {SHARD}")
    extension = Extension(
        arguments.vectors.absolute(), arguments.from_passages, seed=arguments.seed, longest=arguments.longest
    )
    arguments.to.mkdir(parents=True, exist_ok=True)
    if arguments.write is None:
        (arguments.to / EXTENSION).write_text(json.dumps(extension.record(), indent=2) + "\n")
    else:
        write(extension, arguments.to, arguments.write)


def write(extension: Extension, to: Path, n_passages: int) -> None:
    """As `embeddings.py` writes; the lengths last, because where they are the shard is whole."""
    for name in ("query-values.npy", "query-lengths.npy"):
        shutil.copyfile(extension.source / name, to / name)
    (to / "about.json").write_text(json.dumps({"made": extension.record()}) + "\n")
    for number in range(-(-n_passages // SHARD)):
        if not shard(to, "lengths", number).exists():
            values, lengths = extension.make(number)
            np.save(shard(to, "values", number), values)
            np.save(shard(to, "lengths", number), lengths)


if __name__ == "__main__":
    main()
