"""Makes the score matrix that `benchmarks/cur.py` searches: queries by documents of a BEIR folder, and dense vectors.

    python benchmarks/cur_matrix.py path/to/beir --to matrix --model my-cross-encoder --documents 5000 --queries 500
    python benchmarks/cur_matrix.py path/to/beir --to matrix --model maxsim
    python benchmarks/cur_matrix.py path/to/beir --to matrix --model runs/tiny-cls/final

`--model maxsim` is MaxSim of the bundled model's token vectors: a smooth and cheap stand-in for trying things out. A
model that `plait train` left runs in torch, and reads once what it reads apart. Rows are written one query at a
time; the same command goes on where it was stopped. `--items N` adds the scores of N documents as queries, for
fixed-item search and item-CUR.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from plait.cross.encoder import load_cross
from plait.cross.pairs import PairReader
from plait.encode.load import load
from plait.encode.passages import with_title
from plait.evaluate.queries import read_queries
from plait.scoring.maxsim import maxsim
from plait.sources import documents_from
from plait.strands import Strands
from plait.train.cross.checkpoint import is_trained_cross
from plait.train.cross.checkpoint import load as load_trained
from plait.train.cross.scorer import TorchPairScorer

ScoreRow = Callable[[str], NDArray[np.float32]]  # a query to its scores with all documents


def scorer(model: str, texts: Sequence[str], n_threads: int) -> ScoreRow:
    """What fills a row."""
    if model == "maxsim":
        encoder = load(n_threads=n_threads)
        documents = encoder.encode_documents(texts).multi
        assert documents is not None

        def row(query: str) -> NDArray[np.float32]:
            asked = encoder.encode_queries([query]).multi
            assert asked is not None
            return maxsim(asked[0], documents, n_threads=n_threads)

        return row
    if is_trained_cross(Path(model)):
        torch.set_num_threads(n_threads)
        trained, tokenizer = load_trained(Path(model))
        trained.keeps = True
        reader = PairReader(tokenizer, trained.config.frame)
        return lambda query: TorchPairScorer(trained, reader).score([(query, text) for text in texts])
    cross = load_cross(model, n_threads=n_threads)
    return lambda query: cross.score([(query, text) for text in texts])


def fill(path: Path, queries: Sequence[str], n_items: int, row: ScoreRow) -> NDArray[np.float32]:
    """The rows of all queries; those that are in the file already are not asked for again."""
    width = 4 * n_items
    n_done = path.stat().st_size // width if path.is_file() else 0
    with path.open("r+b" if n_done else "wb") as file:
        file.truncate(n_done * width)
        file.seek(n_done * width)
        began, first = time.perf_counter(), n_done
        for number in range(n_done, len(queries)):
            file.write(np.asarray(row(queries[number]), "<f4").tobytes())
            file.flush()
            rate = (number + 1 - first) * n_items / (time.perf_counter() - began)
            left = (len(queries) - number - 1) * n_items / rate
            print(f"\r{number + 1}/{len(queries)} queries, {rate:,.0f} pairs/s, {left:,.0f} s left", end="", flush=True)
    print()
    return np.fromfile(path, "<f4").reshape(-1, n_items)[: len(queries)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--model", required=True, help="a folder of a cross-encoder, or maxsim")
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--items", type=int, default=0, help="documents that are scored as queries too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    documents = list(documents_from([next(given.data.glob("corpus.jsonl*"))], on_error="skip"))
    order = np.sort(rng.permutation(len(documents))[: given.documents])
    texts = [with_title(documents[place].title, documents[place].text) for place in order]
    asked = sorted(set(read_queries(next(given.data.glob("queries.jsonl*"))).values()))
    queries = [asked[place] for place in rng.permutation(len(asked))[: given.queries]]
    anchors = rng.permutation(len(texts))[: given.items]
    given.to.mkdir(parents=True, exist_ok=True)
    described = {"data": given.data.name, "model": Path(given.model).name, "documents": len(texts), "seed": given.seed}
    _same(given.to / "about.json", described)
    row = scorer(given.model, texts, given.threads)
    fill(given.to / "scores.f32", queries, len(texts), row)
    if given.items:
        fill(given.to / "item_scores.f32", [texts[place] for place in anchors], len(texts), row)
        np.save(given.to / "item_anchors.npy", anchors)
    encoder = load(n_threads=given.threads)
    np.save(given.to / "items.npy", _dense(encoder.encode_documents(texts)))
    np.save(given.to / "queries.npy", _dense(encoder.encode_queries(queries)))


def _dense(strands: Strands) -> NDArray[np.float32]:
    assert strands.dense is not None
    return strands.dense


def _same(path: Path, described: dict[str, object]) -> None:
    """Refuses to go on with a matrix of something else."""
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) != described:
        raise SystemExit(f"{path} is of {path.read_text(encoding='utf-8')}; name another folder")
    path.write_text(json.dumps(described), encoding="utf-8")


if __name__ == "__main__":
    main()
