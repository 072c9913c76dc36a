"""Test collections and runs in the shapes of other libraries: BEIR's dictionaries, ir_datasets, ranx and PyTerrier's
frames. TREC files are read and written by `plait.evaluate.runs`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from plait.checks import check_type, shown
from plait.errors import ConfigError, InputError
from plait.evaluate.datasets import Dataset, irds_dataset
from plait.evaluate.runs import Run, ordered, strictly_decreasing
from plait.integrations.extras import missing_extra
from plait.readers import SourceReport
from plait.records import Document

BeirCorpus = dict[str, dict[str, str]]  # document id -> {"title": ..., "text": ...}
BeirTriple = tuple[BeirCorpus, dict[str, str], dict[str, dict[str, int]]]


# -- BEIR: corpus, queries, qrels


def to_beir(dataset: Dataset) -> BeirTriple:
    """`corpus, queries, qrels`, as the loader of BEIR gives them."""
    corpus = {document.id: {"title": document.title, "text": document.text} for document in dataset.documents()}
    return corpus, dict(dataset.queries), {query: dict(judged) for query, judged in dataset.qrels.items()}


def from_beir(
    corpus: Mapping[str, Mapping[str, str] | str],
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    name: str = "beir",
    split: str = "test",
) -> Dataset:
    """A dataset of plait from `corpus, queries, qrels`. Judged queries without a text are counted and left out."""
    for what, given in (("corpus", corpus), ("queries", queries), ("qrels", qrels)):
        check_type(what, given, Mapping, "a dictionary by id", InputError)
    known = {str(id): text for id, text in queries.items() if id in qrels}
    if not known:
        raise InputError(f"none of the {len(qrels)} judged queries is in the queries")
    judgements = {str(id): {str(one): int(value) for one, value in qrels[id].items()} for id in queries if id in qrels}
    return Dataset(
        name, name, split, None, known, judgements, len(qrels) - len(known), partial(_beir_documents, corpus)
    )


def _beir_documents(corpus: Mapping[str, Mapping[str, str] | str], report: SourceReport) -> Iterator[Document]:
    for id, fields in corpus.items():
        title, text = ("", fields) if isinstance(fields, str) else (fields.get("title") or "", fields.get("text") or "")
        if text.strip() or title.strip():
            report.documents += 1
            yield Document(str(id), text, title)
        else:
            report.add_error(InputError(f"document {id!r} is blank"))


def write_beir(folder: str | Path, dataset: Dataset) -> None:
    """Writes a BEIR folder: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv."""
    folder = Path(folder)
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = ({"_id": one.id, "title": one.title, "text": one.text} for one in dataset.documents())
    _write_lines(folder / "corpus.jsonl", documents)
    _write_lines(folder / "queries.jsonl", ({"_id": id, "text": text} for id, text in dataset.queries.items()))
    lines = [
        f"{query}\t{document}\t{value}\n"
        for query, judged in dataset.qrels.items()
        for document, value in judged.items()
    ]
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / f"{dataset.split}.tsv").write_text(header + "".join(lines), encoding="utf-8")


def _write_lines(file: Path, rows: Iterator[dict[str, str]]) -> None:
    with file.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def beir_results(run: Run) -> dict[str, dict[str, float]]:
    """A run as BEIR's evaluator takes it: scores by query and document, which decrease strictly."""
    results = {}
    for query, ranking in run.items():
        entries = ordered(ranking)
        scores = strictly_decreasing([score for _, score in entries])
        results[query] = {id: score for (id, _), score in zip(entries, scores, strict=True)}
    return results


# -- ir_datasets


def from_ir_datasets(dataset: Any, name: str | None = None) -> Dataset:
    """A dataset of plait from an object of ir_datasets. By id: `plait.evaluate.load_irds`, or irds:NAME on the command
    line."""
    needed = ("queries_iter", "qrels_iter", "docs_iter", "has_docs")
    if not all(callable(getattr(dataset, call, None)) for call in needed):
        raise InputError(f"{shown(dataset)} is no dataset of ir_datasets: it lacks one of {', '.join(needed)}")
    known: Callable[[], str] | None = getattr(dataset, "dataset_id", None)
    return irds_dataset(dataset, name or (known() if callable(known) else "ir-datasets"))


# -- ranx


def to_ranx_run(run: Run, name: str = "plait") -> Any:
    """A `ranx.Run`. Its order is that of the run: scores decrease strictly."""
    return _ranx().Run(beir_results(run), name=name)


def to_ranx_qrels(qrels: Mapping[str, Mapping[str, int]]) -> Any:
    """A `ranx.Qrels`."""
    return _ranx().Qrels({query: dict(judged) for query, judged in qrels.items()})


def from_ranx_run(run: Any) -> dict[str, list[tuple[str, float]]]:
    """A run of plait from a `ranx.Run`."""
    if not callable(getattr(run, "to_dict", None)):
        raise ConfigError(f"{shown(run)} is no ranx.Run")
    return {query: ordered(list(scores.items())) for query, scores in run.to_dict().items()}


def _ranx() -> Any:
    try:
        import ranx
    except ModuleNotFoundError as error:
        raise missing_extra("ranx", error) from error
    return ranx


# -- PyTerrier


def topics_frame(dataset: Dataset) -> Any:
    """The queries as PyTerrier takes them: columns qid and query."""
    rows = [{"qid": id, "query": text} for id, text in dataset.queries.items()]
    return _pandas().DataFrame(rows, columns=["qid", "query"])


def qrels_frame(dataset: Dataset) -> Any:
    """The judgements as PyTerrier takes them: columns qid, docno and label."""
    rows = [
        {"qid": query, "docno": document, "label": value}
        for query, judged in dataset.qrels.items()
        for document, value in judged.items()
    ]
    return _pandas().DataFrame(rows, columns=["qid", "docno", "label"])


def _pandas() -> Any:
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise missing_extra("pyterrier", error) from error
    return pd
