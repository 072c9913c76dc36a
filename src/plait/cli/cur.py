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

FEWEST = 5  # anchor queries


class Action(StrEnum):
    build = "build"
    update = "update"
    info = "info"


class Corpus(StrEnum):
    titles = "titles"
    sentences = "sentences"


class Choice(StrEnum):
    random = "random"
    clusters = "clusters"
    leverage = "leverage"


def cur(
    action: Annotated[Action, typer.Argument(help="build, update or info.", show_default=False)],
    index: IndexPath,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Anchor queries: a line each, or JSON lines.", show_default=False),
    ] = None,
    from_corpus: Annotated[
        Corpus | None, typer.Option(help="Make anchor queries from the documents.", show_default=False)
    ] = None,
    n_queries: Annotated[int, typer.Option(min=FEWEST, help="How many, with --from-corpus.")] = 200,
    model: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="The cross-encoder; for update, that of the build.", show_default=False),
    ] = None,
    anchors: Annotated[int, typer.Option(min=0, help="Anchor documents; 0 lets dev queries choose.")] = 0,
    choice: Annotated[Choice, typer.Option(help="How anchor documents are chosen.")] = Choice.random,
    budget: Annotated[int, typer.Option(min=2, help="Calls of the cross-encoder that a search will have.")] = 200,
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbours that split and cut are chosen for.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    as_json: AsJson = False,
    threads: Threads = None,
) -> None:
    """Build what search with a cross-encoder needs: --mode anncur and adacur.

    Scores every document with every anchor query, which may take hours. It can be stopped at any time: the same command
    goes on. `update` scores documents that were added since.

    \b
    Examples:
      plait cur build my-index --queries queries.txt --model my-cross-encoder
      plait cur build my-index --from-corpus titles --n-queries 200 --model my-cross-encoder
      plait cur update my-index
      plait search my-index "woven" --mode anncur --budget 200
    """
    from plait.cur.build import CurConfig
    from plait.cur.index import CurFolder
    from plait.storage.store import Store

    with Store.open(index, read_only=action is Action.info) as store:
        if action is Action.info:
            manifest = CurFolder(index).manifest()
        elif action is Action.update:
            manifest = _update(store, model, threads)
        else:
            config = CurConfig(budget=budget, k=k, n_anchors=anchors, anchor_method=choice.value, seed=seed)
            manifest = _build(store, queries, from_corpus, n_queries, model, config, threads)
    _tell(index, manifest, as_json=as_json)


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
        raise ConfigError("say where anchor queries come from: --queries FILE, or --from-corpus titles or sentences")
    if file is not None:
        asked = queries_from_file(file, minimum=FEWEST)
    else:
        assert corpus is not None
        with store.snapshot() as snapshot:
            asked = queries_from_corpus(snapshot, corpus.value, n_queries, seed=config.seed)
    scorer = load_cross(model, n_threads=threads)
    with _Watched(store.path) as on_pairs:
        return build_cur(store, scorer, asked, config, model=_kept_name(model), on_pairs=on_pairs)


def _update(store: Store, model: str | None, threads: int | None) -> CurManifest:
    from plait.cur.build import update_cur
    from plait.cur.index import CurFolder
    from plait.rerank.cross_encoder import load_cross

    CurFolder(store.path).manifest()  # says so if there is nothing to update
    stored = CurFolder(store.path).scores_manifest()
    scorer = load_cross(model or (stored.model if stored else None) or None, n_threads=threads)
    with _Watched(store.path) as on_pairs:
        return update_cur(store, scorer, on_pairs=on_pairs)


def _kept_name(model: str | None) -> str:
    """What finds the model again from anywhere: a folder by its whole path, a bundled one by its name."""
    return "" if model is None else str(Path(model).resolve()) if Path(model).is_dir() else model


class _Watched:
    """A progress bar whose total is known only when scoring begins; and Ctrl-C that says how to go on."""

    def __init__(self, index: Path) -> None:
        self._index, self._stack = index, ExitStack()
        self._update: Callable[[int, int], None] | None = None

    def __enter__(self) -> _Watched:
        return self

    def __call__(self, done: int, total: int) -> None:
        from plait.cli.progress import progress

        if self._update is None:
            self._update = self._stack.enter_context(progress("score", "pairs", total=total))
        self._update(done, done)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if kind is KeyboardInterrupt:
            raise StoppedError(f"stopped; all scores so far are kept in {self._index}. The same command goes on")


def _tell(index: Path, manifest: CurManifest, *, as_json: bool) -> None:
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
            f"the anchor block has only {manifest.rank} directions for {len(manifest.anchor_docs)} anchors: fewer "
            f"anchors would do, or choose them by leverage"
        )
