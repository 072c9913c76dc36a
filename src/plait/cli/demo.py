"""`plait demo`: indexes the documentation of Python's standard library and answers questions with it."""

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

# Questions in other words than the docstrings, each with its answer. They are seven of 29 that were tried; nine of the
# 29 had their answer first with the bundled model. Of these seven five do, one comes third and one is missed.
QUESTIONS = {
    "how much room is left on my drive": "shutil.disk_usage",
    "pick a winner at random": "random.choice",
    "show a web page in the browser": "webbrowser.open",
    "ask for a password without showing it": "getpass.getpass",
    "compare two texts line by line": "difflib.Differ",
    "split a sentence into words": "str.split",
    "copy a folder with everything in it": "shutil.copytree",
}
N_HITS = 3
ABOUT_ID = "about-this-index"
COMMIT_EVERY = 500  # small, so that the progress bar moves


def demo(
    to: Annotated[Path, typer.Option(metavar="INDEX", help="The index folder.")] = Path("plait-demo"),
    model: Model = None,
    threads: Threads = None,
) -> None:
    """Index and search the documentation of the Python library.

    A second run uses the index of the first.

    \b
    Example:
      plait demo --to my-demo
    """
    import plait
    from plait.cli.info import describe_size

    with plait.open(to, create=True, model=model, n_threads=threads) as opened:
        build_demo(opened, to)
        facts = opened.info()
        print(f"{facts.documents:,} documents, {facts.passages:,} passages, {describe_size(facts.bytes)} on disk\n")
        _ask(opened)
    print("Ask your own question:")
    print(f'  plait search {shlex.quote(str(to))} "how do I measure how long my code takes"')


def build_demo(opened: Index, to: Path) -> None:
    """Fills the index of the demo, unless it is complete."""
    if _is_complete(opened, to):
        print(f"{to} already holds the standard library of Python {platform.python_version()}")
    else:
        _build(opened, to)


def _is_complete(opened: Index, to: Path) -> bool:
    """True if the index is complete and of this Python version; StoreError if it is not an index of the demo."""
    if not opened.info().documents:
        return False
    hits = opened.search("standard library", 1, mode="bm25", filter=f"id = '{ABOUT_ID}' and kind = 'demo'")
    if not hits:
        raise StoreError(f"{to} is an index, but not of the demo; choose another folder with --to")
    metadata = hits[0].metadata
    return bool(metadata.get("complete")) and metadata.get("python") == platform.python_version()


def _about(*, complete: bool) -> Document:
    """A document about the index. It is added first, and marked as complete when all others are added."""
    from plait.records import Document

    version = platform.python_version()
    text = f"The docstrings of the standard library of Python {version}, made searchable by plait."
    return Document(ABOUT_ID, text, "About this index", {"kind": "demo", "python": version, "complete": complete})


def _build(opened: Index, to: Path) -> None:
    from plait.cli.progress import progress
    from plait.readers.stdlib import stdlib_documents

    documents = [*stdlib_documents()]
    n_committed = 0
    print(f"indexing the standard library of Python {platform.python_version()}: {len(documents):,} docstrings")
    with progress("indexing", "documents", total=len(documents)) as update:

        def on_progress(done: AddProgress) -> None:
            nonlocal n_committed
            n_committed = done.committed
            update(done.documents, done.documents)

        try:
            added = opened.add(
                itertools.chain([_about(complete=False)], documents), commit_every=COMMIT_EVERY, on_progress=on_progress
            )
            opened.add([_about(complete=True)])
        except KeyboardInterrupt:
            raise StoppedError(
                f"stopped; {n_committed:,} documents are saved in {to}. Run plait demo again to continue"
            ) from None
    rate = len(documents) / added.seconds if added.seconds else 0.0
    print(f"done in {added.seconds:.1f} s, {rate:,.0f} documents/s")


def _ask(opened: Index) -> None:
    from plait.cli.render import print_hits

    opened.search(next(iter(QUESTIONS)), N_HITS)  # loads the model, which is not timed
    ranks = []
    for question, answer in QUESTIONS.items():
        began = time.perf_counter()
        hits = opened.search(question, N_HITS)
        milliseconds = 1000 * (time.perf_counter() - began)
        print(f"? {question}   ({milliseconds:.0f} ms)")
        print_hits(hits, question)
        ranks.append(next((rank for rank, hit in enumerate(hits, 1) if hit.id == answer), None))
        if ranks[-1] != 1:
            print(f"  The answer is {answer}: {f'rank {ranks[-1]}' if ranks[-1] else f'not in the best {N_HITS}'}.\n")
    n_found = sum(rank is not None for rank in ranks)
    print(f"{ranks.count(1)} of {len(ranks)} answers are first, {n_found} in the best {N_HITS}.\n")
