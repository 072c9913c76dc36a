"""The workload of the crash tests, and a dictionary that says what the index must hold afterwards."""

from __future__ import annotations

import random
import shutil
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plait.codec.projection import Projection
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.load import EXTERNAL
from plait.encode.protocol import EmbeddingSpec
from plait.filters import compile_filter
from plait.records import Document, Span
from plait.search.bm25 import bm25_search
from plait.storage import compaction as compact
from plait.storage import merge_policy as tiers
from plait.storage import writer as writing
from plait.storage.check import check
from plait.storage.segment import leftover_folders
from plait.storage.store import Snapshot, Store
from plait.storage.writer import Writer

SPEC = EmbeddingSpec(dense=2, multi=8, sparse=64)
N_VECTORS = 8  # of a document
PROJECTION = Projection(dims=8, min_vectors=100)
State = dict[str, str]  # ids and texts


@dataclass(frozen=True, slots=True)
class Step:
    """One batch of work: documents to write, ids to delete, a compaction, or another writer in the place of this."""

    # write, delete, delete where, compact, project or reopen; writes are followed by a merge where it pays
    what: str
    documents: tuple[tuple[str, str], ...] = ()
    ids: tuple[str, ...] = ()
    retrain: bool = False

    def applied(self, state: State) -> State:
        if self.what == "write":
            return {**state, **dict(self.documents)}
        return {id: text for id, text in state.items() if id not in self.ids}


def merge_early() -> None:
    """From now on in this process, few writes and few vectors are enough for a merge that compresses."""
    for module in (tiers, writing):
        setattr(module, "FANOUT", 3)  # noqa: B010 -- imported there, not defined
    for name in ("MIN_COMPRESSED_VECTORS", "ROWS_PER_CELL"):
        setattr(compact, name, 1)


def steps_of(seed: int, n_steps: int) -> list[Step]:
    """A workload: adding, replacing, deleting and compacting, at random."""
    rng = random.Random(seed)
    steps = []
    for number in range(n_steps):
        ids = tuple(f"d{rng.randrange(60)}" for _ in range(rng.randint(1, 4)))
        kinds = ["write", "delete", "delete where", "compact", "project", "reopen"]
        what = rng.choices(kinds, [6, 1, 1, 2, 2, 1])[0]
        documents = tuple((id, f"text {seed} {number} of {id}") for id in dict.fromkeys(ids)) if what == "write" else ()
        steps.append(Step(what, documents, ids if what.startswith("delete") else (), rng.random() < 0.4))
    return steps


def embeddings_of(texts: Iterable[str]) -> Embeddings:
    """Vectors that are the text's own, so that a row that belongs to another document shows."""
    numbers = [zlib.crc32(text.encode()) for text in texts]
    dense = np.asarray([(number & 0xFFFF, number >> 16) for number in numbers], np.float32).reshape(-1, 2)
    items = [np.random.default_rng(number).standard_normal((N_VECTORS, 8), dtype=np.float32) for number in numbers]
    terms = np.asarray([(number % 32, 32 + number % 31) for number in numbers], np.int32).reshape(-1)
    sparse = SparseVectors(terms, np.ones(len(terms), np.float32), np.arange(len(numbers) + 1, dtype=np.int64) * 2)
    return Embeddings(dense=dense, sparse=sparse, multi=MultiVectors.from_items(items, dim=8))


def write(writer: Writer, documents: Iterable[tuple[str, str]]) -> None:
    made = [Document(id, text, metadata={"length": len(text)}) for id, text in documents]
    writer.write(made, [[Span(0, len(document.text))] for document in made], embeddings_of(one.text for one in made))


def run(writer: Writer, step: Step) -> None:
    if step.what == "write":
        write(writer, step.documents)
        writer.merge()
    elif step.what == "delete":
        writer.delete(step.ids)
    elif step.what == "delete where":
        named = ", ".join(f'"{id}"' for id in step.ids)
        writer.delete_where(compile_filter(f"id in ({named})"))
        writer.merge()
    elif step.what == "compact":
        writer.compact(retrain=step.retrain)
    elif step.what == "project":
        # Vectors are encoded again, since those of an index with a projection are not whole.
        writer.compact(projection=PROJECTION if step.retrain else False, encode=encode)


def encode(documents: Sequence[Document], spans: Sequence[Sequence[Span]]) -> Embeddings:
    del spans
    return embeddings_of(document.text for document in documents)


def make_base(path: Path) -> State:
    """An index of 48 documents in three segments, the first of them compressed, some rows deleted."""
    texts = {f"d{number}": f"first text of d{number}" for number in range(48)}
    with Store.create(path, fingerprint=EXTERNAL, spec=SPEC, properties={}) as store, store.writer() as writer:
        write(writer, list(texts.items())[:40])
        writer.compact()
        write(writer, list(texts.items())[40:])
        write(writer, [("d1", "second text of d1")])
        writer.delete(["d2", "d41"])
    del texts["d2"], texts["d41"]
    return {**texts, "d1": "second text of d1"}


def state_of(snapshot: Snapshot) -> State:
    """All that a snapshot holds, by way of its rows; each row must be its document's own."""
    found: State = {}
    for segment in snapshot.segments:
        rows = np.arange(segment.n_rows) if segment.live is None else np.flatnonzero(segment.live)
        documents = snapshot.fetch(segment.docs[rows].tolist())
        assert segment.dense is not None
        expected = embeddings_of(document.text for document in documents).dense
        assert expected is not None
        assert np.array_equal(segment.dense[rows], expected), "a row has the vector of another text"
        found.update((document.id, document.text) for document in documents)
    assert len(found) == snapshot.n_documents, f"{snapshot.n_documents} documents are counted, {len(found)} have rows"
    worded = set(snapshot.fetch_ids(bm25_search(snapshot, "text", 1000)[0].tolist()))
    assert worded == {id for id, text in found.items() if "text" in text}, "full text finds other documents"
    return found


def verify(path: Path, possible: list[State]) -> None:
    """The index opens, is sound, has one of the possible states, and can be written; nothing is left behind."""
    with Store.open(path) as store:
        with store.snapshot() as snapshot:
            found = state_of(snapshot)
        assert found in possible, f"the index holds {_difference(found, possible)}"
        _assert_sound(path)
        with store.writer() as writer:
            write(writer, [("after", "the crash")])
        with store.snapshot() as snapshot:
            assert state_of(snapshot) == {**found, "after": "the crash"}
            live = {segment.number for segment in snapshot.segments}
        assert leftover_folders(path, live) == []
    _assert_sound(path)


def verify_made(path: Path) -> None:
    """Making an index was cut short, or was not: either it is there, or it can be made."""
    if not (path / "catalogue.sqlite").exists() or not _opens(path):
        Store.create(path, fingerprint=EXTERNAL, spec=SPEC, properties={}).close()
    verify(path, [{}])
    shutil.rmtree(path)


def _opens(path: Path) -> bool:
    from plait.errors import NotAnIndexError

    try:
        Store.open(path).close()
    except NotAnIndexError:
        return False
    return True


def _assert_sound(path: Path) -> None:
    report = check(path)
    assert report.ok, f"check finds {report.problems}"


def _difference(found: State, possible: list[State]) -> str:
    nearest = min(possible, key=lambda state: len(found.items() ^ state.items()))
    return f"{sorted(found.items() - nearest.items())} and lacks {sorted(nearest.items() - found.items())}"
