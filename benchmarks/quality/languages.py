"""Search in many languages: full text on judged sets, questions in one language on texts of another, and sentences.

    python -m benchmarks.quality.languages bm25 --data data --sets scifact jaquad xquad/de@de afriqa/fr@fr+translation
    python -m benchmarks.quality.languages cross --data data/xquad --asked en de zh --corpus en --mode bm25 dense hybrid
    python -m benchmarks.quality.languages sentences --data data/flores200 --pairs deu_Latn-eng_Latn --mode bm25 dense

A set is a BEIR folder below --data; `@de` sets the language of its index, `:dev` names a split other than test, and
`+field` takes queries from another field of the queries file. `cross` needs folders that share their ids. BM25 needs no
model, so its indexes have no vectors. Times are thread CPU time.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import plait
from plait.embeddings import Embeddings
from plait.evaluate import Dataset, load_dataset, measure, rank_queries, without_self
from plait.records import Document

BATCH = 5000
ASKED_SET = re.compile(r"(?P<name>[^@:+]+)(?::(?P<split>\w+))?(?:@(?P<language>\w+))?(?:\+(?P<field>\w+))?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for name, run in (("bm25", bm25), ("cross", cross), ("sentences", sentences)):
        verb = verbs.add_parser(name)
        verb.set_defaults(run=run)
        verb.add_argument("--data", type=Path, required=True)
        verb.add_argument("--queries", type=int, default=None, help="only so many of each")
        verb.add_argument("--mode", nargs="+", default=["bm25"], help="bm25, or those of the model")
        verb.add_argument("--model", help="another than the default")
        if name == "bm25":
            verb.add_argument("--sets", nargs="+", required=True)
            verb.add_argument("--figures", type=Path, help="a page with a table of nDCG@10 to compare with")
        if name == "cross":
            verb.add_argument("--asked", nargs="+", required=True, help="languages of the questions: folders")
            verb.add_argument("--corpus", nargs="+", required=True, help="languages of the texts: folders")
            verb.add_argument("--language", action="store_true", help="name the language of each corpus")
        if name == "sentences":
            verb.add_argument("--pairs", nargs="+", required=True, help="FROM-TO: fields, or languages of Tatoeba")
    options = parser.parse_args()
    options.run(options)


def bm25(options: argparse.Namespace) -> None:
    """nDCG@10 of full text on each set, beside the figures of a page."""
    figures = read_figures(options.figures) if options.figures else {}
    row("set", "language", "queries", "nDCG@10", "R@100", "reference", "difference", "ms a query")
    for entry in options.sets:
        parts = ASKED_SET.fullmatch(entry)
        if parts is None:
            raise SystemExit(f"{entry!r} is not NAME, NAME:SPLIT, NAME@LANGUAGE or NAME+FIELD")
        name, language = parts["name"], parts["language"]
        judged = some_queries(load_dataset(str(options.data / name), parts["split"] or "test"), options.queries)
        if parts["field"]:
            judged = asking_with(judged, options.data / name, parts["field"])
        with tempfile.TemporaryDirectory() as folder, text_index(Path(folder), judged.documents(), language) as index:
            rank_queries(index, list(judged.queries.values())[:1], 10, mode="bm25")
            start = time.thread_time()
            run = ranked(index, judged.queries, 101, "bm25")
            each = (time.thread_time() - start) / len(run) * 1000
        run = without_self(run, 100) if "arguana" in name else run
        scores = measure(run, judged.qrels, ["nDCG@10", "R@100"])
        reference = figures.get(name)
        reference_cells = (
            ("", "") if reference is None else (f"{reference:.3f}", f"{scores['nDCG@10'] - reference:+.3f}")
        )
        row(
            entry,
            language or "",
            len(run),
            f"{scores['nDCG@10']:.3f}",
            f"{scores['R@100']:.3f}",
            *reference_cells,
            f"{each:.2f}",
        )


def cross(options: argparse.Namespace) -> None:
    """nDCG@10 of questions in each language on texts of each."""
    row("texts", "mode", *options.asked)
    for texts in options.corpus:
        judged = load_dataset(str(options.data / texts), "test")
        language = texts if options.language else None
        with (
            tempfile.TemporaryDirectory() as folder,
            any_index(Path(folder), judged.documents(), options, language) as index,
        ):
            for mode in options.mode:
                figures = []
                for other in options.asked:
                    questions = some_queries(load_dataset(str(options.data / other), "test"), options.queries)
                    run = ranked(index, questions.queries, 10, mode)
                    figures.append(f"{measure(run, questions.qrels, ['nDCG@10'])['nDCG@10']:.3f}")
                row(texts, mode, *figures)


def sentences(options: argparse.Namespace) -> None:
    """The share of sentences whose translation is found first."""
    row("pair", "sentences", *options.mode)
    for pair in options.pairs:
        origin, target = pair.split("-")
        lines = list(itertools.islice(translations(options.data, origin, target), options.queries))
        documents = [Document(str(number), text) for number, (_, text) in enumerate(lines)]
        queries = {str(number): text for number, (text, _) in enumerate(lines)}
        with tempfile.TemporaryDirectory() as folder, any_index(Path(folder), documents, options, None) as index:
            shares = []
            for mode in options.mode:
                run = ranked(index, queries, 1, mode)
                n_right = sum(bool(hits) and hits[0][0] == query for query, hits in run.items())
                shares.append(f"{n_right / len(run):.3f}")
        row(pair, len(lines), *shares)


def any_index(
    folder: Path, documents: Iterable[Document], options: argparse.Namespace, language: str | None
) -> plait.Index:
    """An index, with a model if a mode needs one."""
    if options.mode == ["bm25"]:
        return text_index(folder, documents, language)
    index = plait.open(folder / "index", create=True, model=options.model, language=language, n_threads=1)
    index.add(documents)
    return index


def text_index(folder: Path, documents: Iterable[Document], language: str | None) -> plait.Index:
    """An index for full text only."""
    index = plait.open(folder / "index", create=True, spec=plait.EmbeddingSpec(), language=language)
    rest = iter(documents)
    while batch := list(itertools.islice(rest, BATCH)):
        index.add_embeddings(batch, Embeddings(), merge=False)
    return index


def ranked(index: plait.Index, queries: Mapping[str, str], k: int, mode: str) -> dict[str, list[tuple[str, float]]]:
    rankings: Sequence[list[tuple[str, float]]] = rank_queries(index, list(queries.values()), k, mode=mode)
    return dict(zip(queries, rankings, strict=True))


def some_queries(judged: Dataset, count: int | None) -> Dataset:
    queries = dict(itertools.islice(judged.queries.items(), count))
    return replace(judged, queries=queries, qrels={query: judged.qrels[query] for query in queries})


def asking_with(judged: Dataset, folder: Path, field: str) -> Dataset:
    with gzip.open(folder / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        fields = {record["_id"]: record.get(field) for record in map(json.loads, lines)}
    return replace(judged, queries={query: fields[query] or text for query, text in judged.queries.items()})


def translations(data: Path, origin: str, target: str) -> Iterable[tuple[str, str]]:
    """Sentence pairs of FLORES (one line for all languages) or Tatoeba (pairs with English)."""
    if (data / "pairs.tsv.gz").exists():
        with gzip.open(data / "pairs.tsv.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                language, _, foreign, english = line.rstrip("\n").split("\t")
                if language == origin and target == "eng":
                    yield foreign, english
        return
    with gzip.open(data / "dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            yield record[origin], record[target]


def read_figures(page: Path) -> dict[str, float]:
    """The nDCG@10 column of a Markdown table whose first column is the name of the set."""
    figures: dict[str, float] = {}
    column = None
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if any(cell.endswith("nDCG@10") for cell in cells):
            column = next(number for number, cell in enumerate(cells) if cell.endswith("nDCG@10"))
        elif column is not None and len(cells) > column and (number := re.match(r"\d\.\d+", cells[column])):
            figures[cells[0]] = float(number[0])
    return figures


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
