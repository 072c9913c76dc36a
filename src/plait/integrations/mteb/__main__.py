"""`python -m plait.integrations.mteb FOLDER`: one data set, measured by MTEB's evaluator and by plait's."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import mteb

import plait
from plait.errors import PlaitError
from plait.evaluate import load_dataset, measure, rank_dataset
from plait.integrations.mteb import BeirFolderTask, PlaitSearch
from plait.integrations.mteb.task import EXACT

K = 1000  # documents that MTEB asks for
MEASURES = {"ndcg_at_10": "nDCG@10", "recall_at_100": "R@100", "map_at_100": "AP@100"}


def compare(data: str, split: str, model: str | None, mode: str, folder: Path, *, drop_self: bool) -> list[str]:
    """A line for each measure: its name, MTEB's value and plait's, of one index."""
    judged = load_dataset(data, split)
    task = BeirFolderTask(judged, drop_self=drop_self)
    search = PlaitSearch(model, mode=mode, folder=folder)
    results = mteb.evaluate(search, [task], cache=None, co2_tracker=False, show_progress_bar=False)
    (scores,) = results.task_results[0].scores[judged.split]
    search.close()
    (path,) = folder.iterdir()
    with plait.open(path, model=model, read_only=True) as index:
        run = rank_dataset(index, judged, mode, K, drop_self=drop_self).run
    ours = measure(run, judged.qrels, list(MEASURES.values()))
    return [
        f"{name:10}  MTEB {scores[EXACT + theirs]:.6f}  plait {ours[name]:.6f}" for theirs, name in MEASURES.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m plait.integrations.mteb", description=__doc__)
    parser.add_argument("data", help="a BEIR or MS MARCO folder, or irds:NAME")
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", help="a bundled or installed model, or a model folder")
    parser.add_argument("--mode", default="hybrid")
    parser.add_argument("--drop-self", action="store_true", help="leave out documents with the id of the query")
    given = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="plait-") as folder:
            lines = compare(given.data, given.split, given.model, given.mode, Path(folder), drop_self=given.drop_self)
    except PlaitError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
