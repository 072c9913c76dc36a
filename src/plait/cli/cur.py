"""`plait cur`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import StoppedError, say
from plait.cli.options import AsJson, IndexPath, Threads
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.cur.build import CurConfig
    from plait.cur.index import CurManifest
    from plait.storage.store import Store

MIN_ANCHOR_QUERIES = 5


class Action(StrEnum):
    build = "build"
    update = "update"
    info = "info"


class Corpus(StrEnum):
    titles = "titles"
    sentences = "sentences"


class AnchorMethod(StrEnum):
    random = "random"
    clusters = "clusters"
    leverage = "leverage"


def cur(
    action: Annotated[Action, typer.Argument(help="build, update or info.", show_default=False)],
    index: IndexPath,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Anchor queries: one on each line, or JSON lines.", show_default=False),
    ] = None,
    from_corpus: Annotated[
        Corpus | None, typer.Option(help="Make anchor queries from the documents.", show_default=False)
    ] = None,
    n_queries: Annotated[
        int, typer.Option(min=MIN_ANCHOR_QUERIES, help="With --from-corpus: the number of anchor queries.")
    ] = 200,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="The cross-encoder; update uses an installed one again.",
            show_default=False,
        ),
    ] = None,
    n_anchors: Annotated[
        int, typer.Option(min=0, help="Number of anchor documents; 0: chosen with held-out queries.")
    ] = 0,
    anchor_method: Annotated[AnchorMethod, typer.Option(help="How anchor documents are chosen.")] = AnchorMethod.random,
    budget: Annotated[int, typer.Option(min=2, help="Cross-encoder calls that a search may make.")] = 200,
    k: Annotated[int, typer.Option("-k", min=1, help="Choose parameters for the recall of the k best.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
    as_json: AsJson = False,
    threads: Threads = None,
) -> None:
    """Build the CUR index for the modes anncur and adacur.

    These modes search with a cross-encoder. Scores every document with every anchor query, which may take hours. It can
    be stopped at any time; run the same command again to continue. `update` scores documents that were added since the
    build.

    \b
    Examples:
      plait cur build my-index --queries queries.txt --model my-model
      plait cur build my-index --from-corpus titles --model my-model
      plait cur update my-index
      plait search my-index "looms" --mode anncur --budget 200
    """
    from plait.cur.build import CurConfig
    from plait.cur.index import require_cur
    from plait.storage.store import Store

    with Store.open(index, read_only=action is Action.info) as store:
        if action is Action.info:
            manifest = require_cur(index).manifest
        elif action is Action.update:
            manifest = _update(store, model, threads)
        else:
            config = CurConfig(budget=budget, k=k, n_anchors=n_anchors, anchor_method=anchor_method.value, seed=seed)
            manifest = _build(store, queries, from_corpus, n_queries, model, config, threads)
    _print_manifest(index, manifest, as_json=as_json)


def _build(
    store: Store,
    file: Path | None,
    corpus: Corpus | None,
    n_queries: int,
    model: str | None,
    config: CurConfig,
    threads: int | None,
) -> CurManifest:
    from plait.cur.anchor_queries import queries_from_corpus, queries_from_file
    from plait.cur.build import build_cur
    from plait.rerank.cross_encoder import load_cross

    if (file is None) == (corpus is None):
        raise ConfigError("anchor queries are missing: give --queries FILE, or --from-corpus titles or sentences")
    if file is not None:
        anchor_queries = queries_from_file(file, minimum=MIN_ANCHOR_QUERIES)
    else:
        assert corpus is not None
        with store.snapshot() as snapshot:
            anchor_queries = queries_from_corpus(snapshot, corpus.value, n_queries, seed=config.seed)
    scorer = load_cross(model, n_threads=threads)
    with _ScoringProgress(store.path) as on_pairs:
        return build_cur(store, scorer, anchor_queries, config, model=_findable_name(model), on_pairs=on_pairs)


def _update(store: Store, model: str | None, threads: int | None) -> CurManifest:
    from plait.cur.build import update_cur
    from plait.cur.index import require_cur
    from plait.rerank.cross_encoder import load_cross, trusted_cross

    scored = require_cur(store.path).manifest.scores
    scorer = load_cross(model or trusted_cross(store.path, scored.model), n_threads=threads)
    with _ScoringProgress(store.path) as on_pairs:
        return update_cur(store, scorer, on_pairs=on_pairs)


def _findable_name(model: str | None) -> str:
    """The absolute path of a model folder, or the name of a bundled model."""
    return "" if model is None else str(Path(model).resolve()) if Path(model).is_dir() else model


class _ScoringProgress:
    """A progress bar whose total is known only when scoring begins. Ctrl-C prints how to continue."""

    def __init__(self, index: Path) -> None:
        self._index, self._stack = index, ExitStack()
        self._update: Callable[[int, int], None] | None = None

    def __enter__(self) -> _ScoringProgress:
        return self

    def __call__(self, done: int, total: int) -> None:
        from plait.cli.progress import progress

        if self._update is None:
            self._update = self._stack.enter_context(progress("score", "pairs", total=total))
        self._update(done, done)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if kind is KeyboardInterrupt:
            raise StoppedError(
                f"stopped; all scores so far are saved in {self._index}. Run the same command again to continue"
            )


def _print_manifest(index: Path, manifest: CurManifest, *, as_json: bool) -> None:
    fields = {
        "index": str(index),
        "documents": manifest.n_documents,
        "anchors": len(manifest.anchor_docs),
        "rank": manifest.rank,
        "rcond": manifest.rcond,
        "budget": manifest.budget,
        "k": manifest.k,
        "dev_recall": round(manifest.dev_recall, 4),
        "dev_queries": manifest.n_dev_queries,
        "created": manifest.created,
    }
    if as_json:
        print(json.dumps(fields))
        return
    print(
        f"{index}: {manifest.n_documents:,} documents over {len(manifest.anchor_docs)} anchors of rank {manifest.rank} "
        f"(rcond {manifest.rcond:g}); Top-{manifest.k}-Recall {manifest.dev_recall:.3f} with {manifest.budget} calls "
        f"on {manifest.n_dev_queries} dev queries"
    )
    if manifest.rank < len(manifest.anchor_docs) // 2:
        say(
            f"the anchor block has only {manifest.rank} directions for {len(manifest.anchor_docs)} anchors: use fewer "
            f"anchors, or --anchor-method leverage"
        )
