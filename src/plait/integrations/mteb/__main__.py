"""`python -m plait.integrations.mteb FOLDER`: one index and one data set, measured by MTEB's evaluator and by plait's.

The right column is what `plait eval` computes; MTEB's is taken before MTEB rounds it to five digits. The exit code is 1
if a figure differs by more than a millionth.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import mteb

import plait
from plait.errors import PlaitError
from plait.evaluate import Dataset, load_dataset, measure, rank_dataset
from plait.integrations.mteb import BeirFolderTask, PlaitSearch
from plait.integrations.mteb.task import EXACT

K = 1000  # documents that MTEB asks for
MEASURES = {"ndcg_at_10": "nDCG@10", "recall_at_100": "R@100", "map_at_100": "AP@100"}
TOLERANCE = 1e-6


def compare(
    judged: Dataset, model: str | None, mode: str, folder: Path, *, drop_self: bool
) -> Iterator[tuple[str, float, float]]:
    """Each measure with MTEB's value and plait's. The index is made in `folder`, or used again."""
    search = PlaitSearch(model, mode=mode, folder=folder)
    task = BeirFolderTask(judged, drop_self=drop_self)
    results = mteb.evaluate(search, [task], cache=None, co2_tracker=False, show_progress_bar=False)
    (scores,) = results.task_results[0].scores[judged.split]
    search.close()
    (path,) = folder.iterdir()
    with plait.open(path, model=model, read_only=True) as index:
        run = rank_dataset(index, judged, mode, K, drop_self=drop_self).run
    ours = measure(run, judged.qrels, list(MEASURES.values()))
    for theirs, name in MEASURES.items():
        yield name, float(scores[EXACT + theirs]), ours[name]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m plait.integrations.mteb", description=__doc__)
    parser.add_argument("data", help="a BEIR or MS MARCO folder, or irds:NAME")
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", help="a bundled or installed model, or a model folder")
    parser.add_argument("--mode", action="append", help="a mode of search; may be given several times")
    parser.add_argument("--drop-self", action="store_true", help="leave out documents with the id of the query")
    given = parser.parse_args(arguments)
    is_equal = True
    try:
        judged = load_dataset(given.data, given.split)
        with tempfile.TemporaryDirectory(prefix="plait-") as folder:
            for mode in given.mode or ["hybrid"]:
                for name, theirs, ours in compare(judged, given.model, mode, Path(folder), drop_self=given.drop_self):
                    difference = abs(theirs - ours)
                    figures = f"MTEB {theirs:.8f}  plait {ours:.8f}  difference {difference:.1e}"
                    print(f"{mode:8} {name:8}  {figures}", flush=True)
                    is_equal &= difference <= TOLERANCE
    except PlaitError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
