"""Test collections: BEIR folders, MS MARCO folders, and the datasets of the ir_datasets library (irds:ID).

ir_datasets is no dependency of plait. It downloads what is not on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from plait.errors import ConfigError, InputError, SourceError
from plait.evaluate.dataset_files import (
    Qrels,
    find_file,
    lines_of,
    parse_qrels,
    read_qrels,
    read_queries,
    require_file,
)
from plait.readers import SourceReport, documents_from
from plait.records import Document

IRDS_PREFIX = "irds:"
ReadCorpus = Callable[[SourceReport], Iterator[Document]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """One split of a test collection. Every query has a text and judgements."""

    name: str
    path: Path | str  # as given: a folder, or irds:ID
    split: str
    corpus: Path | None  # the corpus file, if there is one; measuring an existing index does not need it
    queries: dict[str, str]  # the queries with judgements in this split, in the order of the file
    qrels: Qrels
    n_without_text: int = 0  # judged queries without a text, which are left out
    read_corpus: ReadCorpus | None = None  # yields the corpus if it is not a file

    def documents(self, report: SourceReport | None = None) -> Iterator[Document]:
        """Yields the corpus. Blank documents, which many corpora have and no search can find, are skipped and counted
        in `report`."""
        report = SourceReport() if report is None else report
        if self.read_corpus is not None:
            return self.read_corpus(report)
        if self.corpus is None:
            raise InputError(f"{self.path} has no corpus; it can only measure an index that exists already")
        return documents_from([self.corpus], on_error="skip", report=report)


def load_dataset(source: str | Path, split: str = "test") -> Dataset:
    """The split of the dataset at `source`. An ir_datasets id names its split itself, and `split` is ignored."""
    if str(source).startswith(IRDS_PREFIX):
        return load_irds(str(source))
    path = Path(source)
    return load_msmarco(path, split) if any(path.glob("qrels.*.tsv*")) else load_beir(path, split)


def is_dataset(source: str | Path) -> bool:
    """True for a folder or an ir_datasets id, False for a qrels file."""
    return str(source).startswith(IRDS_PREFIX) or Path(source).is_dir()


def _dataset(
    name: str,
    path: Path | str,
    split: str,
    texts: dict[str, str],
    qrels: Qrels,
    *,
    corpus: Path | None = None,
    read_corpus: ReadCorpus | None = None,
) -> Dataset:
    """The set of the queries with both a text and judgements; InputError if there are none."""
    queries = {id: text for id, text in texts.items() if id in qrels}
    if not queries:
        raise InputError(f"{path}: none of the {len(qrels)} judged queries of split {split!r} is in the queries file")
    usable_qrels = {id: qrels[id] for id in queries}
    return Dataset(name, path, split, corpus, queries, usable_qrels, len(qrels) - len(usable_qrels), read_corpus)


# -- BEIR


def load_beir(path: str | Path, split: str = "test") -> Dataset:
    """A split of a BEIR folder: queries.jsonl, qrels/SPLIT.tsv and corpus.jsonl; files may end in .gz."""
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"there is no folder {str(path)!r}; a BEIR folder has queries.jsonl and qrels/{split}.tsv")
    splits = sorted({file.name.split(".")[0] for file in path.glob("qrels/*.tsv*")})
    hint = f"the folder has the splits {', '.join(splits)}" if splits else "is this a BEIR folder?"
    qrels_file = require_file(path / "qrels", f"{split}.tsv", hint=hint)
    qrels = parse_qrels(lines_of(qrels_file), qrels_file, n_columns=3)
    texts = read_queries(require_file(path, "queries.jsonl", hint="is this a BEIR folder?"))
    return _dataset(path.resolve().name, path, split, texts, qrels, corpus=find_file(path, "corpus.jsonl"))


# -- MS MARCO


def load_msmarco(path: str | Path, split: str = "dev.small") -> Dataset:
    """A split of an MS MARCO passage folder, named as in its files: dev.small, dev, train. The files are
    queries.SPLIT.tsv, qrels.SPLIT.tsv and collection.tsv; they may end in .gz."""
    path = Path(path)
    if not path.is_dir():
        raise InputError(
            f"there is no folder {str(path)!r}; an MS MARCO folder has queries.{split}.tsv and qrels.{split}.tsv"
        )
    splits = sorted({file.name.split(".tsv")[0].removeprefix("qrels.") for file in path.glob("qrels.*.tsv*")})
    hint = f"the folder has the splits {', '.join(splits)}" if splits else "is this an MS MARCO folder?"
    qrels = read_qrels(require_file(path, f"qrels.{split}.tsv", hint=hint))
    hint = "the queries file and the qrels file must name the same split"
    texts = read_queries(require_file(path, f"queries.{split}.tsv", hint=hint))
    return _dataset(path.resolve().name, path, split, texts, qrels, corpus=find_file(path, "collection.tsv"))


# -- ir_datasets


def load_irds(id: str) -> Dataset:
    """The ir_datasets dataset with this id, which names a split as well; with or without the prefix `irds:`."""
    id = id.removeprefix(IRDS_PREFIX)
    return irds_dataset(_open_irds(id), id)


def irds_dataset(dataset: Any, id: str) -> Dataset:
    """The dataset of an ir_datasets object; `id` names it."""
    for part in ("queries", "qrels"):
        if not getattr(dataset, f"has_{part}")():
            raise InputError(f"the ir_datasets dataset {id!r} has no {part}; name one of its parts, such as {id}/test")
    qrels: Qrels = {}
    for judgement in dataset.qrels_iter():
        qrels.setdefault(judgement.query_id, {})[judgement.doc_id] = int(judgement.relevance)
    texts = {query.query_id: _irds_text(query) for query in dataset.queries_iter()}
    read_corpus = partial(_irds_documents, dataset) if dataset.has_docs() else None
    source, split = f"{IRDS_PREFIX}{id}", id.rpartition("/")[2]
    return _dataset(id.replace("/", "-"), source, split, texts, qrels, read_corpus=read_corpus)


def irds_documents(id: str, report: SourceReport | None = None) -> Iterator[Document]:
    """The corpus of the ir_datasets dataset with this id, which needs no queries. Blank documents are skipped and
    counted in `report`."""
    id = id.removeprefix(IRDS_PREFIX)
    dataset = _open_irds(id)
    if not dataset.has_docs():
        raise InputError(f"the ir_datasets dataset {id!r} has no documents; name the dataset that it belongs to")
    return _irds_documents(dataset, SourceReport() if report is None else report)


def _open_irds(id: str) -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise ConfigError(
            f"{IRDS_PREFIX}{id} needs the ir_datasets library, which is not installed: pip install 'plait[ir-datasets]'"
        ) from None
    try:
        return ir_datasets.load(id)
    except KeyError:
        raise InputError(f"ir_datasets has no dataset {id!r}; https://ir-datasets.com lists all of them") from None


def _irds_text(record: Any) -> str:
    """The text of a query or document: the library's default text, or the field `text`, or the title."""
    if hasattr(record, "default_text"):
        return str(record.default_text())
    return str(getattr(record, "text", "") or getattr(record, "title", ""))


def _irds_documents(dataset: Any, report: SourceReport) -> Iterator[Document]:
    for record in dataset.docs_iter():
        title = str(getattr(record, "title", "") or "")
        text = str(getattr(record, "text", "") or getattr(record, "body", ""))
        if not text:
            title, text = "", _irds_text(record)
        if text.strip():
            report.documents += 1
            yield Document(record.doc_id, text, title)
        else:
            report.add_error(SourceError(f"document {record.doc_id!r} is blank"))
