"""`plait rerank`, and the options of reranking that other verbs share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from plait.checks import parse_json
from plait.cli.errors import say
from plait.cli.options import Threads
from plait.errors import ConfigError, InputError, SourceError

if TYPE_CHECKING:
    from plait.rerank.cross_encoder import CrossEncoder
    from plait.rerank.reranker import Reranker
    from plait.search.params import Params

Rerank = Annotated[bool, typer.Option("--rerank", help="Rerank the best hits with a cross-encoder.")]
RerankModel = Annotated[
    str | None,
    typer.Option(
        "--rerank-model",
        metavar="NAME|FOLDER",
        help="The cross-encoder, a folder or ORG/NAME; implies --rerank.",
        show_default=False,
    ),
]
RerankDepth = Annotated[
    int | None,
    typer.Option("--rerank-depth", min=1, help="How many hits to rerank; 50 by default.", show_default=False),
]
RerankBlend = Annotated[
    float | None,
    typer.Option(
        "--rerank-blend",
        min=0.0,
        max=0.99,
        help="The share of the first scores; 0.5 with plait-cross-small, else 0.",
        show_default=False,
    ),
]
Budget = Annotated[
    int | None,
    typer.Option(min=1, help="Cross-encoder calls for each query, in modes anncur, adacur, axn.", show_default=False),
]


def _asks_cross_encoder(mode: str) -> bool:
    import plait.searcher  # noqa: F401 (declares the modes that ask a cross-encoder)
    from plait.search.modes import find_mode, mode_names

    return mode in mode_names() and find_mode(mode).asks_cross_encoder


@dataclass(frozen=True, slots=True)
class CrossEncoderOptions:
    """The options about cross-encoders, checked against the modes."""

    modes: Sequence[str]
    given_params: Mapping[str, object] | None
    budget: int | None
    rerank: bool
    model: str | None
    depth: int | None
    blend: float | None = None

    def __post_init__(self) -> None:
        if self.budget is not None and not any(map(_asks_cross_encoder, self.modes)):
            from plait.search.modes import all_modes

            names = ", ".join(mode.name for mode in all_modes() if mode.asks_cross_encoder)
            raise ConfigError(f"--budget is for the modes {names}; choose one with --mode")
        if self.depth is not None and not self._reranks:
            raise ConfigError("--rerank-depth is given, but nothing is reranked; add --rerank")
        if self.blend is not None and not self._reranks:
            raise ConfigError("--rerank-blend is given, but nothing is reranked; add --rerank")

    @property
    def _reranks(self) -> bool:
        """With --rerank, or with a model that no mode uses by itself."""
        return self.rerank or (self.model is not None and not all(map(_asks_cross_encoder, self.modes)))

    def params(self, mode: str) -> Params | None:
        """The parameters of a mode; budget and model are parameters of modes that call a cross-encoder."""
        from plait.search.modes import parse_params

        words = dict(self.given_params or {})
        if _asks_cross_encoder(mode):
            cross = {"budget": self.budget, "model": self.model}
            words.update({name: value for name, value in cross.items() if value is not None})
        return parse_params(mode, words) if words else None

    def reranker(self, threads: int | None) -> Reranker | None:
        if not self._reranks:
            return None
        from plait.rerank.reranker import DEFAULT_DEPTH, load_reranker

        return load_reranker(self.model, depth=self.depth or DEFAULT_DEPTH, blend=self.blend, n_threads=threads)


def rerank(
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="JSON lines, or a TREC run with --index.", show_default=False)
    ] = "-",
    model: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="The cross-encoder; by default plait-cross-small.", show_default=False),
    ] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Print only the k best.", show_default=False)] = None,
    index: Annotated[
        Path | None,
        typer.Option(metavar="INDEX", help="FILE is a TREC run of this index.", show_default=False),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --index: the queries, as BEIR's queries.jsonl.", show_default=False),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="With --index: documents to rerank for each query.")] = 50,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --index: write the new run here.", show_default=False)
    ] = None,
    threads: Threads = None,
) -> None:
    """Rerank candidates with a cross-encoder.

    Each line of FILE is an object with `query` and `candidates`: texts, or objects with `text` and optionally `id` and
    `title`. Prints one line for each: the query, and the candidates with `score`, best first.

    \b
    Examples:
      plait rerank candidates.jsonl --model my-cross-encoder
      plait rerank in.trec --index ix --queries queries.jsonl --to out.trec
    """
    run_options = {"--queries": queries, "--to": to}
    if index is None and any(run_options.values()):
        raise ConfigError(
            f"{', '.join(name for name, value in run_options.items() if value)} needs --index and a TREC run"
        )
    if index is not None and not all(run_options.values()):
        raise ConfigError("with --index, give --queries (the texts of the queries) and --to (the new run) too")
    from plait.rerank.cross_encoder import load_cross

    encoder = load_cross(model, n_threads=threads)
    if index is not None:
        assert queries is not None
        assert to is not None
        _rerank_run(encoder, Path(source), index, queries, to, depth=depth, k=k)
        return
    for query, candidates in _read_requests(source):
        print(json.dumps({"query": query, "candidates": _ranked(encoder, query, candidates, k)}))


def _ranked(
    encoder: CrossEncoder, query: str, candidates: Sequence[Mapping[str, Any]], k: int | None
) -> list[dict[str, Any]]:
    from plait.encode.chunking import with_title

    scores = encoder.score([(query, with_title(one.get("title", ""), one["text"])) for one in candidates])
    order = sorted(range(len(candidates)), key=lambda position: (-scores[position], position))[:k]
    return [{**candidates[position], "score": float(scores[position])} for position in order]


def _read_requests(source: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    with sys.stdin if source == "-" else _open_source(Path(source)) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _parse_request(line, f"{'standard input' if source == '-' else source}, line {number}")


def _open_source(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8")
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}; give a file, or - for standard input") from None


def _parse_request(line: str, where: str) -> tuple[str, list[dict[str, Any]]]:
    wrong = InputError(f"{where}: expected an object with 'query' and a list 'candidates' of texts; got {line:.60}")
    try:
        fields = parse_json(line)
        query, given = fields["query"], fields["candidates"]
    except (ValueError, KeyError, TypeError):
        raise wrong from None
    if not isinstance(query, str) or not query.strip() or not isinstance(given, list):
        raise wrong
    candidates = [{"id": str(number), "text": one} if isinstance(one, str) else one for number, one in enumerate(given)]
    for one in candidates:
        texts = [one.get("text"), one.get("title", "")] if isinstance(one, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{where}: a candidate must be a text or an object with 'text'; got {one!r:.60}")
    return query, candidates


def _rerank_run(
    encoder: CrossEncoder, source: Path, index: Path, queries: Path, to: Path, *, depth: int, k: int | None
) -> None:
    import plait
    from plait.cli.progress import progress
    from plait.evaluate import ordered, read_run, write_run
    from plait.evaluate.dataset_files import read_queries
    from plait.search.hits import load_texts

    run, texts = read_run(source), read_queries(queries)
    missing = [query for query in run if query not in texts]
    if missing:
        raise InputError(
            f"{len(missing)} queries of {source} are not in {queries}, the first is {missing[0]!r}; add them"
        )
    reranked: dict[str, list[tuple[str, float]]] = {}
    with plait.open(index, read_only=True) as opened, progress("rerank", "queries", total=len(run)) as update:
        for query, ranking in run.items():
            ids = [id for id, _ in ranking[:depth]]
            scores = encoder.score([(texts[query], passage) for passage in load_texts(opened.snapshot, ids)])
            reranked[query] = ordered([(id, float(score)) for id, score in zip(ids, scores, strict=True)])[:k]
            update(len(reranked), len(reranked))
    write_run(to, reranked)
    say(f"wrote {to}")
