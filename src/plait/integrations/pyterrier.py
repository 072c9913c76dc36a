"""PyTerrier: plait as a retriever, a scorer, a cross-encoder and an indexer of pipelines. None of them needs Java.

from plait.integrations.pyterrier import PlaitIndexer, PlaitReranker, PlaitRetriever

index = PlaitIndexer("my-index").index(dataset.get_corpus_iter())
pipeline = PlaitRetriever(index, include=("text",)) % 50 >> PlaitReranker()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plait.checks import check_count, shown
from plait.errors import ConfigError, DocumentError, QueryError
from plait.evaluate.runs import ordered, strictly_decreasing
from plait.index import Index, open_index
from plait.integrations.extras import missing_extra
from plait.integrations.opening import IndexOrPath, as_index, plain_search
from plait.integrations.reranking import best_texts, check_scorer
from plait.records import Document, Hit

try:
    import pandas as pd
    import pyterrier as pt
except ModuleNotFoundError as error:
    raise missing_extra("pyterrier", error) from error

INCLUDED = ("text", "title", "passage")  # columns that a retriever can add
QUERIES_AT_ONCE = 64


class PlaitRetriever(pt.Transformer):
    """Retrieves documents for queries: columns qid and query become qid, query, docno, score and rank.

    `index` is an open index or the path of one. `search` are further options of `Index.search`, such as a filter.
    `include` adds columns: text, title, passage (the best one) or the names of metadata fields. Equal scores are
    lowered by the least that 32 bits can hold, so that every evaluator sees the same order.
    """

    def __init__(
        self,
        index: IndexOrPath,
        *,
        mode: str = "hybrid",
        num_results: int = 1000,
        include: Sequence[str] = (),
        search: Mapping[str, Any] | None = None,
    ) -> None:
        check_count("num_results", num_results)
        if isinstance(include, str):
            raise ConfigError(f"include is {shown(include)}; it must be a sequence of names, such as ('text',)")
        self.index, self.num_results, self.include = as_index(index), num_results, tuple(include)
        self._search = plain_search({"mode": mode, **(search or {})})
        self._mode = mode

    def __repr__(self) -> str:
        return f"PlaitRetriever({str(self.index.path)!r}, mode={self._mode!r}, num_results={self.num_results})"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.query_frame(inp, extra_columns=["query"])
        rows: list[dict[str, Any]] = []
        queries = inp.to_dict("records")
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            batch = queries[start : start + QUERIES_AT_ONCE]
            answers = self.index.search_many([query_text(row) for row in batch], self.num_results, **self._search)
            for row, hits in zip(batch, answers, strict=True):
                rows += [{**row, **fields} for fields in self._rows(hits)]
        columns = [*inp.columns, "docno", "score", "rank", *self.include]
        return pd.DataFrame(rows, columns=columns) if rows else empty_frame(columns)

    def _rows(self, hits: Sequence[Hit]) -> Iterator[dict[str, Any]]:
        by_id = {hit.id: hit for hit in hits}
        entries = ordered([(hit.id, hit.score) for hit in hits])
        scores = strictly_decreasing([score for _, score in entries])
        for rank, ((id, _), score) in enumerate(zip(entries, scores, strict=True), pt.model.FIRST_RANK):
            added = {name: included(by_id[id], name) for name in self.include}
            yield {"docno": id, "score": score, "rank": rank, **added}


class PlaitScorer(pt.Transformer):
    """Scores the documents of other retrievers by an index: columns qid, query and docno get a new score and rank.

    Documents that the index does not have, and those that the mode does not find, such as by BM25 without a common
    word, come last.
    """

    def __init__(self, index: IndexOrPath, *, mode: str = "multi", search: Mapping[str, Any] | None = None) -> None:
        self.index = as_index(index)
        self._search = plain_search({"mode": mode, "exact": True, **(search or {})})
        self._mode = mode

    def __repr__(self) -> str:
        return f"PlaitScorer({str(self.index.path)!r}, mode={self._mode!r})"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.result_frame(inp, extra_columns=["query"])
        scored = inp.drop(columns=["score", "rank"], errors="ignore").copy()
        scores: dict[tuple[str, str], float] = {}
        for _, group in scored.groupby("qid", sort=False):
            scores |= {(group["qid"].iloc[0], id): score for id, score in self._scores(group).items()}
        pairs = zip(scored["qid"], scored["docno"], strict=True)
        scored["score"] = pd.Series([scores[pair] for pair in pairs], index=scored.index, dtype="float64")
        return pt.model.add_ranks(scored)

    def _scores(self, group: pd.DataFrame) -> dict[str, float]:
        ids = [str(id) for id in group["docno"]]
        known = list(dict.fromkeys(id for id in ids if id in self.index))
        text = query_text({"qid": group["qid"].iloc[0], "query": group["query"].iloc[0]})
        hits = self.index.search(text, len(known), candidates=known, **self._search) if known else []
        scores = {hit.id: hit.score for hit in hits}
        last = min([0.0, *scores.values()]) - 1
        return {id: scores.get(id, last) for id in ids}


class PlaitReranker(pt.Transformer):
    """Scores documents by a cross-encoder: columns qid, query, docno and text get a new score and rank.

    `model` is the name or folder of a cross-encoder, an object of `plait.adapters` that scores pairs, or None for
    plait-cross-small. `text_field` is the column that it reads.
    """

    def __init__(self, model: Any = None, *, text_field: str = "text") -> None:
        check_scorer(model)
        self.model, self.text_field = model, text_field

    def __repr__(self) -> str:
        return f"PlaitReranker({self.model!r})"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field])
        scored = inp.drop(columns=["score", "rank"], errors="ignore").copy()
        scored["score"] = pd.Series(0.0, index=scored.index, dtype="float64")
        for _, group in scored.groupby("qid", sort=False):
            best = best_texts(self.model, group["query"].iloc[0], group[self.text_field].tolist(), None)
            for position, score in best:
                scored.loc[group.index[position], "score"] = score
        return pt.model.add_ranks(scored)


class PlaitIndexer(pt.Indexer):
    """Indexes documents, dictionaries with docno and text: `PlaitIndexer("my-index").index(documents)`.

    `title_field` is encoded with the text; `meta` are fields that are stored as metadata, by default all others.
    `options` are those of `plait.open`, such as model. The result is the open index.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        text_field: str = "text",
        title_field: str | None = "title",
        meta: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self.path, self._options = Path(path), options
        self._text_field, self._title_field, self._meta = text_field, title_field, meta

    def index(self, iter: Iterable[Mapping[str, Any]], **options: Any) -> Index:  # noqa: A002  # PyTerrier's name
        """Adds documents; those whose docno exists are replaced. Further options are those of `Index.add`."""
        opened = open_index(self.path, **{"create": True, **self._options})
        opened.add((self._document(fields) for fields in iter), **options)
        return opened

    def _document(self, fields: Mapping[str, Any]) -> Document:
        for name in ("docno", self._text_field):
            if name not in fields:
                raise DocumentError(f"a document has no {name!r}; its fields are {shown(list(fields), 200)}")
        title = fields.get(self._title_field) if self._title_field is not None else None
        used = {"docno", self._text_field, self._title_field}
        names = [name for name in fields if name not in used] if self._meta is None else list(self._meta)
        metadata = {name: fields[name] for name in names if name in fields}
        return Document(fields["docno"], fields[self._text_field], title or "", metadata)


def query_text(row: Mapping[str, Any]) -> str:
    text = row["query"]
    if not isinstance(text, str):
        raise QueryError(f"the query {shown(row.get('qid'))} is {shown(text)}; it must be text")
    return text


def included(hit: Hit, name: str) -> Any:
    return getattr(hit, name) if name in INCLUDED else hit.metadata.get(name)


def empty_frame(columns: Sequence[str]) -> pd.DataFrame:
    """No rows, with columns of the types that PyTerrier expects."""
    types = {"score": "float64", "rank": "int64"}
    return pd.DataFrame({name: pd.Series(dtype=types.get(name, "object")) for name in columns})
