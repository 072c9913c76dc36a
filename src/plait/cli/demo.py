"""`plait demo`: indexes the documentation of Python's standard library, then asks it questions in other words."""

from __future__ import annotations

import itertools
import platform
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import StoppedError
from plait.cli.options import Model, Threads
from plait.errors import StoreError

if TYPE_CHECKING:
    from plait import Index
    from plait.ingest import AddProgress
    from plait.records import Document

# Asked as people ask: the answers are written in other words. Not all go well, and those that do not were kept: no
# docstring says how to drop duplicates, and the nearest is shown.
QUESTIONS = (
    "how do I parse a date",
    "run something every few seconds",
    "how much room is left on my drive",
    "pick a winner at random",
    "copy a folder with everything in it",
    "split a sentence into words",
    "remove duplicates but keep the order",
)
SHOWN = 3
ABOUT = "about-this-index"
COMMIT_EVERY = 500  # small, so that the bar moves


def demo(
    to: Annotated[Path, typer.Option(metavar="INDEX", help="The folder of the index.")] = Path("plait-demo"),
    model: Model = None,
    threads: Threads = None,
) -> None:
    """Index something that everyone has, and search it.

    That is the documentation of Python's standard library. The second time, the index is there already and the
    answers come at once.

    \b
    Example:
      plait demo --to my-demo
    """
    import plait
    from plait.cli.info import describe_size

    with plait.open(to, create=True, model=model, n_threads=threads) as opened:
        if _is_ready(opened, to):
            print(f"{to} holds the standard library of Python {platform.python_version()} already")
        else:
            _build(opened, to)
        facts = opened.info()
        print(f"{facts.documents:,} documents, {facts.passages:,} passages, {describe_size(facts.bytes)} on disk\n")
        _ask(opened)
    print("Ask your own:")
    print(f'  plait search {shlex.quote(str(to))} "how do I measure how long my code takes"')


def _is_ready(opened: Index, to: Path) -> bool:
    """Whether the index is whole and of this Python; StoreError if it is an index of something else."""
    if not opened.info().documents:
        return False
    found = opened.search("standard library", 1, mode="bm25", filter=f"id = '{ABOUT}' and kind = 'demo'")
    if not found:
        raise StoreError(f"{to} is an index, but not of the demo; give another folder with --to")
    metadata = found[0].metadata
    return bool(metadata.get("whole")) and metadata.get("python") == platform.python_version()


def _about(*, whole: bool) -> Document:
    """A document on the index itself: it comes first, and is marked as whole when all others are in."""
    from plait.records import Document

    version = platform.python_version()
    text = f"The docstrings of the standard library of Python {version}, made searchable by plait."
    return Document(ABOUT, text, "About this index", {"kind": "demo", "python": version, "whole": whole})


def _build(opened: Index, to: Path) -> None:
    from plait.cli.progress import progress
    from plait.readers.stdlib import stdlib_documents

    documents = [*stdlib_documents()]
    n_kept = 0
    print(f"indexing the standard library of Python {platform.python_version()}: {len(documents):,} docstrings")
    with progress("indexing", "documents", total=len(documents)) as update:

        def on_progress(done: AddProgress) -> None:
            nonlocal n_kept
            n_kept = done.committed
            update(done.documents, done.documents)

        try:
            added = opened.add(
                itertools.chain([_about(whole=False)], documents), commit_every=COMMIT_EVERY, on_progress=on_progress
            )
            opened.add([_about(whole=True)])
        except KeyboardInterrupt:
            raise StoppedError(
                f"stopped; {n_kept:,} documents are safe in {to}. Run plait demo again to go on where it stopped"
            ) from None
    rate = len(documents) / added.seconds if added.seconds else 0.0
    print(f"done in {added.seconds:.1f} s, {rate:,.0f} documents/s")


def _ask(opened: Index) -> None:
    from plait.cli.render import print_hits

    opened.search(QUESTIONS[0], SHOWN)  # loads the model, which is not to be timed
    for question in QUESTIONS:
        began = time.perf_counter()
        hits = opened.search(question, SHOWN)
        milliseconds = 1000 * (time.perf_counter() - began)
        print(f"? {question}   ({milliseconds:.0f} ms)")
        print_hits(hits, question)
