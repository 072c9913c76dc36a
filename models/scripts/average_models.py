"""Averages trained weights with the weights that training began with, or with those of other runs.

    python models/scripts/average_models.py --runs runs/encoder --share 0.5 --to runs/averaged
    plait export runs/averaged --to my-model

The result is (1 - share) * start + share * mean of the runs. The start is made again from the recipe of the first run.
Such a mean forgets less of what the base knew than the trained weights do (Wortsman et al., 2022). The sparse head
begins with random weights, so it is taken from the runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from plait.train import checkpoint
from plait.train.build import build
from plait.train.recipe import read_recipe
from plait.train.run_folder import ABOUT, CURVES, FINAL, RECIPE, VERSIONS, save_model_folder

Weights = Mapping[str, Tensor]
NEW_HEAD = "sparse."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, nargs="+", required=True, help="runs of one recipe")
    parser.add_argument("--share", type=float, default=0.5, help="share of the runs, from 0 to 1")
    parser.add_argument("--to", type=Path, required=True, help="the run to write, for plait export")
    options = parser.parse_args()
    first: Path = options.runs[0]
    loaded = [checkpoint.load(run / FINAL) for run in options.runs]
    with tempfile.TemporaryDirectory() as folder:
        start = build(read_recipe(first / RECIPE), Path(folder)).model.state_dict()
    model, tokenizer = loaded[0]
    model.load_state_dict(averaged(start, [run.state_dict() for run, _ in loaded], options.share))
    options.to.mkdir(parents=True)
    for name in (RECIPE, VERSIONS, CURVES):
        shutil.copyfile(first / name, options.to / name)
    about = json.loads((first / FINAL / ABOUT).read_text(encoding="utf-8")) | {"share": options.share}
    save_model_folder(options.to / FINAL, lambda to: checkpoint.save(model, tokenizer, to), about)


def averaged(start: Weights, runs: Sequence[Weights], share: float) -> dict[str, Tensor]:
    """The weights by name; whole numbers, such as the tables of the sparse head, are those of the first run."""
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; it must be from 0 to 1")
    result: dict[str, Tensor] = {}
    for name, first in runs[0].items():
        if not first.is_floating_point():
            result[name] = first
            continue
        mean = torch.stack([run[name] for run in runs]).mean(dim=0)
        result[name] = mean if name.startswith(NEW_HEAD) else torch.lerp(start[name], mean, share)
    return result


if __name__ == "__main__":
    main()
