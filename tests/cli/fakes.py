"""A stand-in for the engine, so that the command line is tested for what it adds: words in, words out, exit codes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, NotAnIndexError, UnknownFieldWarning
from plait.folder_sync import FileProgress
from plait.ingest import AddProgress, AddReport
from plait.readers import ReadOptions, SourceReport, documents_from
from plait.records import Document, Hit, Span
from plait.storage.info import StoreInfo
from plait.storage.saved_settings import SavedParams


@dataclass
class FakeIndex:
    """Finds every document that holds a word of the query; remembers what it was asked."""

    path: Path
    documents: dict[str, Document] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    interrupt_after: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(
        self,
        documents: Iterable[Document],
        *,
        commit_every: int = 2000,
        merge: bool = True,
        on_progress: Callable[[AddProgress], None] | None = None,
    ) -> AddReport:
        self.asked.append({"merge": merge})
        report = AddReport(seconds=0.5, truncated=1)
        for document in documents:
            if document.id in self.documents:
                report.repeated.append(document.id)
            self.documents[document.id] = document
            report.added += 1
            if on_progress is not None:
                n_committed = report.added - report.added % commit_every
                on_progress(AddProgress(report.added, n_committed, passages=report.added, seconds=0.1))
            if report.added == self.interrupt_after:
                raise KeyboardInterrupt
        report.passages = report.added
        return report

    def add_files(
        self,
        paths: Sequence[str],
        *,
        options: ReadOptions | None = None,
        on_error: str = "skip",
        report: SourceReport | None = None,
        commit_every: int = 2000,
        merge: bool = True,
        on_progress: Callable[[FileProgress], None] | None = None,
    ) -> AddReport:
        documents = documents_from(paths, options=options, on_error=on_error, report=report)

        def report_progress(progress: AddProgress) -> None:
            if on_progress is not None:
                on_progress(FileProgress(progress.documents, progress.committed, 0.0, None))

        return self.add(documents, commit_every=commit_every, merge=merge, on_progress=report_progress)

    def delete(
        self, ids: Sequence[str] | None = None, *, filter: str | None = None, timeout: float | None = None
    ) -> int:
        del timeout
        self.asked.append({"ids": ids, "filter": filter})
        wanted = list(self.documents) if ids is None else ids
        return sum(self.documents.pop(id, None) is not None for id in wanted)

    def search(self, query: str, k: int = 10, **options: Any) -> list[Hit]:
        self.asked.append({"query": query, "k": k, **options})
        wanted = set(query.split())
        matching = [document for document in self.documents.values() if wanted & set(document.text.split())]
        if options.get("filter") and "year" not in options["filter"]:
            warnings.warn("no document has such a field", UnknownFieldWarning, stacklevel=2)
        return [
            Hit(one.id, 1 / rank, one.text, one.title, one.metadata, Span(0, len(one.text)), {"bm25": 1 / rank})
            for rank, one in enumerate(matching[:k], 1)
        ]

    def rank_queries(
        self, queries: Sequence[str], k: int, *, mode: str = "hybrid", **_: Any
    ) -> list[list[tuple[str, float]]]:
        if mode not in ("hybrid", "bm25"):
            raise ConfigError(f"mode {mode!r} needs embeddings that this index does not have")
        return [[(hit.id, hit.score) for hit in self.search(query, k)] for query in queries]

    def search_fingerprint(
        self, k: int = 10, *, mode: str = "hybrid", params: object = None, rerank: object = None
    ) -> str:
        return f"{self.path} {sorted(self.documents)} {k} {mode} {params} {rerank}"

    def info(self) -> StoreInfo:
        n = len(self.documents)
        return StoreInfo(
            path=self.path,
            documents=n,
            passages=n,
            segments=1,
            deleted_passages=0,
            bytes=1_500_000,
            bytes_by_part={"catalogue": 500_000, "multi": 1_000_000},
            format=1,
            created="2025-01-01",
            fingerprint="abc",
            spec=EmbeddingSpec(multi=64),
            properties={"model": "small"},
            tuned=SavedParams(None),
        )


@dataclass
class Library:
    """The indexes there are, by path; what `plait.open` was asked is kept in `opened`."""

    indexes: dict[str, FakeIndex] = field(default_factory=dict)
    opened: list[dict[str, Any]] = field(default_factory=list)

    def open(self, path: Path, *, create: bool = False, **options: Any) -> FakeIndex:
        self.opened.append({"path": str(path), "create": create, **options})
        if str(path) not in self.indexes:
            if not create:
                raise NotAnIndexError(f"{path} is not an index; make one with plait index")
            self.indexes[str(path)] = FakeIndex(path)
        return self.indexes[str(path)]

    def make(self, name: str, **texts: str) -> FakeIndex:
        documents = {id: Document(id, text, f"Title {id}", {"year": 2024}) for id, text in texts.items()}
        self.indexes[name] = FakeIndex(Path(name), documents)
        return self.indexes[name]
