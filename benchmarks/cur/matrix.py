"""Makes the score matrix that `benchmarks.cur.recall` searches: queries by documents of a BEIR folder, and dense
vectors.

    python -m benchmarks.cur.matrix path/to/beir --to matrix --model my-cross-encoder --documents 5000 --queries 500
    python -m benchmarks.cur.matrix path/to/beir --to matrix --model maxsim
    python -m benchmarks.cur.matrix path/to/beir --to matrix --model runs/tiny-cls/final

`--model maxsim` is MaxSim of the bundled model's token vectors: smooth and cheap, for trials. A model trained by `plait
train` runs in torch, and encodes each text once where it can. Rows are written query by query; the same command
continues after a stop. `--items N` adds the scores of N documents as queries, for fixed-item search and item-CUR. Dense
vectors are those of the bundled model, and of others that `--also NAME=FOLDER` names; the best documents of BM25 and
the relevance judgements are stored too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from plait.embeddings import Embeddings
from plait.encode.chunking import with_title
from plait.encode.load import load_model
from plait.evaluate import rank_queries, read_qrels, read_queries
from plait.index import open_index
from plait.readers import documents_from
from plait.records import Document
from plait.rerank.cross_encoder import load_cross
from plait.rerank.pairs import PairTokenizer
from plait.scoring.maxsim import maxsim
from plait.train.cross.model import is_cross_checkpoint as is_trained_cross
from plait.train.cross.model import load_cross_checkpoint as load_trained
from plait.train.cross.scorers import RowScorer, TorchPairScorer, supports_row_scoring
from plait.train.mining.negatives import Bm25Only

ScoreRow = Callable[[str], NDArray[np.float32]]  # from a query to its scores with all documents


def scorer(model: str, texts: Sequence[str], n_threads: int) -> ScoreRow:
    """The function that computes a row."""
    if model == "maxsim":
        encoder = load_model(n_threads=n_threads)
        documents = encoder.encode_documents(texts).multi
        assert documents is not None

        def row(query: str) -> NDArray[np.float32]:
            query_rows = encoder.encode_queries([query]).multi
            assert query_rows is not None
            return maxsim(query_rows[0], documents, n_threads=n_threads)

        return row
    if is_trained_cross(Path(model)):
        torch.set_num_threads(n_threads)
        trained, tokenizer = load_trained(Path(model))
        reader = PairTokenizer(tokenizer, trained.config.pair_input)
        if supports_row_scoring(trained):
            return RowScorer(trained, reader, texts).score
        trained.always_caches = True
        return lambda query: TorchPairScorer(trained, reader).score([(query, text) for text in texts])
    cross = load_cross(model, n_threads=n_threads)
    return lambda query: cross.score([(query, text) for text in texts])


def fill(path: Path, queries: Sequence[str], n_items: int, row: ScoreRow) -> NDArray[np.float32]:
    """The rows of all queries; rows that are in the file already are not computed again."""
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
    parser.add_argument("--words", type=int, default=0, help="of a document that dense models read; 0 is all")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FOLDER", help="another dense model")
    parser.add_argument("--depth", type=int, default=1000, help="of the list by BM25")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    documents = list(documents_from([next(options.data.glob("corpus.jsonl*"))], on_error="skip"))
    order = np.sort(rng.permutation(len(documents))[: options.documents])
    chosen = [documents[position] for position in order]
    texts = [with_title(document.title, document.text) for document in chosen]
    # Each text once: a repeated query must not be both an anchor and a test query.
    by_text = {text: name for name, text in read_queries(next(options.data.glob("queries.jsonl*"))).items()}
    arguments = [(by_text[text], text) for text in sorted(by_text)]
    arguments = [arguments[position] for position in rng.permutation(len(arguments))[: options.queries]]
    queries = [text for _, text in arguments]
    anchors = rng.permutation(len(texts))[: options.items]
    options.to.mkdir(parents=True, exist_ok=True)
    described = {
        "data": options.data.name,
        "model": _name(options.model),
        "documents": len(texts),
        "seed": options.seed,
    }
    _same(options.to / "about.json", described)
    row = scorer(options.model, texts, options.threads)
    fill(options.to / "scores.f32", queries, len(texts), row)
    if options.items:
        fill(options.to / "item_scores.f32", [texts[anchor] for anchor in anchors], len(texts), row)
        np.save(options.to / "item_anchors.npy", anchors)
    judged = relevant(options.data, [name for name, _ in arguments], [document.id for document in chosen])
    (options.to / "positives.json").write_text(json.dumps(judged), encoding="utf-8")
    np.save(options.to / "first-bm25.npy", by_words(chosen, queries, min(options.depth, len(chosen))))
    cut = [" ".join(text.split()[: options.words or None]) for text in texts]
    for named in ("=", *options.also):
        name, _, folder = named.partition("=")
        encoder, end = load_model(folder or None, n_threads=options.threads), f"-{name}" if name else ""
        if not (options.to / f"items{end}.npy").is_file():
            np.save(options.to / f"queries{end}.npy", _dense(encoder.encode_queries(queries)))
            np.save(options.to / f"items{end}.npy", _dense(encoder.encode_documents(cut)))


def relevant(data: Path, queries: Sequence[str], documents: Sequence[str]) -> list[list[int]]:
    """The numbers of the relevant documents of each query, in any split of the folder."""
    places = {document: number for number, document in enumerate(documents)}
    ranks: dict[str, list[int]] = {}
    for file in sorted((data / "qrels").glob("*.tsv")):
        for query, grades in read_qrels(file).items():
            relevant_positions = [
                places[document] for document, grade in grades.items() if grade > 0 and document in places
            ]
            ranks.setdefault(query, []).extend(relevant_positions)
    return [sorted(set(ranks.get(query, []))) for query in queries]


def by_words(documents: Sequence[Document], queries: Sequence[str], depth: int) -> NDArray[np.int32]:
    """(queries, depth): the numbers of BM25's best documents, best first; -1 where it found fewer."""
    places = {document.id: number for number, document in enumerate(documents)}
    numbers = np.full((len(queries), depth), -1, np.int32)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_index(Path(folder) / "index", create=True, encoder=Bm25Only()) as index,
    ):
        index.add(documents)
        for number, ranked in enumerate(rank_queries(index, queries, depth, mode="bm25")):
            ranked_positions = [places[document] for document, _ in ranked]
            numbers[number, : len(ranked_positions)] = ranked_positions
    return numbers


def _name(model: str) -> str:
    """The name of the model; for a run, not the name of its weights folder."""
    path = Path(model)
    return path.parent.name if path.name in ("best", "final") else path.name


def _dense(embeddings: Embeddings) -> NDArray[np.float32]:
    assert embeddings.dense is not None
    return embeddings.dense


def _same(path: Path, described: dict[str, object]) -> None:
    """Refuses to continue a matrix of other data."""
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) != described:
        raise SystemExit(f"{path} is of {path.read_text(encoding='utf-8')}; name another folder")
    path.write_text(json.dumps(described), encoding="utf-8")


if __name__ == "__main__":
    main()
