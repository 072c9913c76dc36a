"""Sets of the ir_datasets library, by their id: irds:beir/scifact/test. The library is no dependency of plait; it
fetches what is not on disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from plait.errors import ConfigError, InputError, SourceError
from plait.evaluate.judged_set import JudgedSet, joined
from plait.evaluate.qrels import Qrels
from plait.readers import SourceReport
from plait.records import Document

PREFIX = "irds:"


def load_irds(id: str) -> JudgedSet:
    """The set with this id, which names a split as well; with or without the prefix `irds:`."""
    id = id.removeprefix(PREFIX)
    dataset = _loaded(id)
    for part in ("queries", "qrels"):
        if not getattr(dataset, f"has_{part}")():
            raise InputError(f"the set {id!r} of ir_datasets has no {part}; name one of its parts, such as {id}/test")
    qrels: Qrels = {}
    for judgement in dataset.qrels_iter():
        qrels.setdefault(judgement.query_id, {})[judgement.doc_id] = int(judgement.relevance)
    texts = {query.query_id: _text(query) for query in dataset.queries_iter()}
    stream = partial(_documents, dataset) if dataset.has_docs() else None
    return joined(id.replace("/", "-"), f"{PREFIX}{id}", id.rpartition("/")[2], texts, qrels, stream=stream)


def _loaded(id: str) -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise ConfigError(
            f"{PREFIX}{id} needs the ir_datasets library, which is not installed: pip install ir-datasets"
        ) from None
    try:
        return ir_datasets.load(id)
    except KeyError:
        raise InputError(f"ir_datasets has no set {id!r}; https://ir-datasets.com lists those there are") from None


def _text(record: Any) -> str:
    """The text of a query or document: what the library says it is, or the first field of that kind."""
    if hasattr(record, "default_text"):
        return str(record.default_text())
    return str(getattr(record, "text", "") or getattr(record, "title", ""))


def _documents(dataset: Any, report: SourceReport) -> Iterator[Document]:
    for record in dataset.docs_iter():
        title = str(getattr(record, "title", "") or "")
        text = str(getattr(record, "text", "") or getattr(record, "body", ""))
        if not text:
            title, text = "", _text(record)
        if text.strip():
            report.documents += 1
            yield Document(record.doc_id, text, title)
        else:
            report.note(SourceError(f"document {record.doc_id!r} is blank"))
