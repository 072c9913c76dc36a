"""A set to measure with: queries, judgements and, where it is at hand, the corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from plait.errors import InputError
from plait.evaluate.qrels import Qrels
from plait.readers import SourceReport, documents_from
from plait.records import Document


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """One split of a set. Every query has a text and judgements."""

    name: str
    path: Path | str  # what was asked for: a folder, or irds:NAME
    split: str
    corpus: Path | None  # the file of the corpus, if it is one; measuring an index does not need it
    queries: dict[str, str]  # those that are judged in this split, in the order of the file
    qrels: Qrels
    n_without_text: int = 0  # judged queries that have no text; they are left out
    stream: Callable[[SourceReport], Iterator[Document]] | None = None  # the corpus, where it is no file

    def documents(self, report: SourceReport | None = None) -> Iterator[Document]:
        """The corpus, read as it is asked for. Many corpora have blank documents, which nothing can find: these are
        passed over and counted in `report`."""
        report = SourceReport() if report is None else report
        if self.stream is not None:
            return self.stream(report)
        if self.corpus is None:
            raise InputError(
                f"{self.path} has no corpus; only an index that was made elsewhere can be measured with it"
            )
        return documents_from([self.corpus], on_error="skip", report=report)


def joined(
    name: str,
    path: Path | str,
    split: str,
    texts: dict[str, str],
    qrels: Qrels,
    *,
    corpus: Path | None = None,
    stream: Callable[[SourceReport], Iterator[Document]] | None = None,
) -> JudgedSet:
    """The set of the queries that have both a text and judgements; InputError if there is none."""
    queries = {id: text for id, text in texts.items() if id in qrels}
    if not queries:
        raise InputError(f"{path}: none of the {len(qrels)} judged queries of split {split!r} is in the queries file")
    kept = {id: qrels[id] for id in queries}
    return JudgedSet(name, path, split, corpus, queries, kept, len(qrels) - len(kept), stream)
