"""`plait search`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli import preload
from plait.cli.errors import NOTHING_FOUND, say
from plait.cli.options import AsJson, IndexPath, Model, Params, Threads, Timeout, params_from
from plait.cli.rerank import Budget, CrossEncoderOptions, Rerank, RerankBlend, RerankDepth, RerankModel

if TYPE_CHECKING:
    from plait.records import Hit
    from plait.search.trace import Trace


def search(
    index: IndexPath,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to search for.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=1, help="Documents to return.")] = 10,
    mode: Annotated[
        str,
        typer.Option(
            help="hybrid, dense, sparse, multi or bm25; exhaustive, plaid, xtr, colxtr or warp; dense-then-multi, "
            "bm25-then-multi, m3-dense-sparse or m3-all; anncur, adacur or axn."
        ),
    ] = "hybrid",
    budget: Budget = None,
    params: Params = None,
    filter: Annotated[
        str | None, typer.Option(help="A condition on metadata, such as 'year >= 2020 and not draft'.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Score every document, without approximation.")] = False,
    as_json: AsJson = False,
    full: Annotated[bool, typer.Option("--full", help="Print whole texts rather than snippets.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print why each document is a hit.")] = False,
    explain_all: Annotated[
        bool, typer.Option("--explain-all", help="As --explain, with every token and not only the content words.")
    ] = False,
    timings: Annotated[bool, typer.Option("--timings", help="Print the time of each stage, on stderr.")] = False,
    rerank: Rerank = False,
    rerank_model: RerankModel = None,
    rerank_depth: RerankDepth = None,
    rerank_blend: RerankBlend = None,
    timeout: Timeout = None,
    model: Model = None,
    threads: Threads = None,
) -> None:
    """Search an index.

    \b
    Examples:
      plait search my-index "how are vectors combined"
      plait search my-index "looms" -k 5 --filter 'year >= 2020 and "nlp" in tags'
      plait search my-index "looms" --mode warp -o n_probe=16
      plait search my-index "looms" --json | jq .id
      plait search my-index "how are vectors combined" -k 3 --explain
    """
    import plait
    from plait.search.trace import Trace

    explain = explain or explain_all
    if not as_json:
        from plait.cli.render import print_explained, print_hits  # imported while the model loads
    cross = CrossEncoderOptions([mode], params_from(params), budget, rerank, rerank_model, rerank_depth, rerank_blend)
    mode_params, reranker, trace = cross.params(mode), cross.reranker(threads), Trace()
    preloaded = preload.take(model, threads)
    with trace.stage("open"):
        opening = plait.open(index, model=model, n_threads=threads, read_only=True, preload=preloaded)
    with opening as opened:
        hits = opened.search(
            text,
            k,
            mode=mode,
            filter=filter,
            exact=exact,
            params=mode_params,
            trace=trace,
            explain=explain,
            rerank=reranker,
            timeout=timeout,
        )
        unknown = opened.snapshot.unknown_filter_fields(filter) if filter and not hits else ""
    if as_json:
        print_json(hits, full=full)
    elif explain and hits:
        print_explained(hits, text, full=full, everything=explain_all)
    elif hits:
        print_hits(hits, text, full=full)
    if timings:
        _print_timings(trace, as_json=as_json)
    if not hits:
        say("plait: nothing found" + (f" among the documents where {filter}" if filter else ""))
        if unknown:
            say(f"plait: {unknown}")
        raise typer.Exit(NOTHING_FOUND)


def print_json(hits: Sequence[Hit], *, full: bool) -> None:
    """Prints one JSON object on each line; escapes all but ASCII if the output encoding is not UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    for rank, hit in enumerate(hits, 1):
        print(json.dumps(as_fields(rank, hit, full=full), ensure_ascii=encoding != "utf8"))


def as_fields(rank: int, hit: Hit, *, full: bool) -> dict[str, Any]:
    """A hit as JSON; `span` is the range of the passage in the text, in characters."""
    fields: dict[str, Any] = {
        "rank": rank,
        "id": hit.id,
        "score": hit.score,
        "scores": dict(hit.scores),
        "title": hit.title,
        "passage": hit.passage,
        "span": list(hit.span),
        "metadata": dict(hit.metadata),
    }
    if full:
        fields["text"] = hit.text
    if hit.explanation is not None:
        fields["explanation"] = hit.explanation.as_fields()
    return fields


def _print_timings(trace: Trace, *, as_json: bool) -> None:
    """With --json one more line of JSON; otherwise a table on stderr."""
    if as_json:
        print(json.dumps({"timings": trace.as_fields()}))
    else:
        say(trace.table(shutil.get_terminal_size().columns))
