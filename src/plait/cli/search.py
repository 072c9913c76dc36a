"""`plait search`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli import preload
from plait.cli.errors import NOTHING_FOUND, say
from plait.cli.options import AsJson, IndexPath, Model, Params, Threads, Timeout, params_from
from plait.cli.rerank import Budget, CrossEncoderOptions, Rerank, RerankBlend, RerankDepth, RerankModel
from plait.errors import ConfigError
from plait.records import hit_fields

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
    offset: Annotated[int, typer.Option(min=0, help="Documents to skip: those of the pages before.")] = 0,
    sort: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Order the best 100 by a field; -FIELD descends.")
    ] = None,
    group_by: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Print the best of each value of a field, and their number.")
    ] = None,
    facets: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Print how often each value occurs in the best 100; may be repeated."),
    ] = None,
    passages: Annotated[int, typer.Option(min=1, help="Passages of each document to print, at most.")] = 1,
    min_score: Annotated[
        str | None,
        typer.Option(metavar="SCORE|auto", help="Leave out hits that score less; auto: those that hardly answer."),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Read no operators in TEXT.")] = False,
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
    TEXT may have operators:
      "a phrase"    the document contains it
      -word         the document does not contain it
      title:word    its title does; or a metadata field
      comp*         it has a word that begins so

    \b
    Examples:
      plait search my-index "how are vectors combined"
      plait search my-index "looms" -k 5 --filter 'year >= 2020 and "nlp" in tags'
      plait search my-index "looms" --sort -year --facets lang
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
            offset=offset,
            sort=sort,
            group_by=group_by,
            passages=passages,
            min_score=_min_score(min_score),
            syntax=not plain,
            highlight=True,
        )
        counted = [
            opened.facets(field, text, mode=mode, filter=filter, params=mode_params, timeout=timeout)
            for field in facets or []
        ]
    if as_json:
        print_json(hits, full=full, first_rank=offset + 1)
    elif explain and hits:
        print_explained(hits, text, full=full, everything=explain_all, first_rank=offset + 1)
    elif hits:
        print_hits(hits, text, full=full, first_rank=offset + 1)
    for one in counted:
        from plait.cli.facets import print_facets

        print_facets(one, as_json=as_json)
    if timings:
        _print_timings(trace, as_json=as_json)
    if not hits:
        say("plait: nothing found" + (f" among the documents where {filter}" if filter else ""))
        raise typer.Exit(NOTHING_FOUND)


def _min_score(given: str | None) -> float | str | None:
    if given is None or given == "auto":
        return given
    try:
        return float(given)
    except ValueError:
        raise ConfigError(f"--min-score is {given!r}; it must be a number or auto") from None


def print_json(hits: Sequence[Hit], *, full: bool, first_rank: int = 1) -> None:
    """Prints one JSON object on each line; escapes all but ASCII if the output encoding is not UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    for rank, hit in enumerate(hits, first_rank):
        print(json.dumps(hit_fields(rank, hit, full=full), ensure_ascii=encoding != "utf8"))


def _print_timings(trace: Trace, *, as_json: bool) -> None:
    """With --json one more line of JSON; otherwise a table on stderr."""
    if as_json:
        print(json.dumps({"timings": trace.as_fields()}))
    else:
        say(trace.table(shutil.get_terminal_size().columns))
