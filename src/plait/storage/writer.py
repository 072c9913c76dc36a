"""The writer: adds, replaces and deletes documents. Files first, then one transaction; a write that fails or is killed
at any point leaves the index as it was."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.closing import Closing
from plait.codec.codebook import Codebook
from plait.codec.pooling import Pooling, pool
from plait.embeddings import Embeddings
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, FilterError, StoreError
from plait.filters import Condition
from plait.records import Document, Span
from plait.storage import catalogue
from plait.storage.catalogue import Placement, SegmentRecord, SegmentRun
from plait.storage.codec_recall import write_codes_recall
from plait.storage.compaction import Compaction, CompactionReport, CompactionRequest, NewSegment
from plait.storage.connection import BUSY_SECONDS, open_for_writing
from plait.storage.deletes import delete_by_id, delete_where_sql, free_ids, not_deleted, purge_deleted
from plait.storage.documents import check_ids
from plait.storage.drift import Drift, read_drift, write_drift
from plait.storage.field_indexes import add_field, path_of
from plait.storage.files.residual import CODED, ResidualFile
from plait.storage.files.text_index import WORDS, write_text_index
from plait.storage.fsync import storage_errors, sync_folder
from plait.storage.fusion_weights import FittedWeights, write_weights
from plait.storage.lock import LOCK, WriterLock
from plait.storage.merge_policy import FANOUT, MOST_DEAD, choose, codec_source, run_of
from plait.storage.segment import Segment, open_file, segment_folder, write_segment
from plait.storage.snapshot import CATALOGUE, Snapshot
from plait.storage.tuned_params import TunedParams, mark_stale, write_tuned_params
from plait.storage.validate import check_batch
from plait.text.fts_table import (
    fts_is_fragmented,
    has_outdated_stems,
    optimize_fts,
    read_analyser,
    read_analysis_rules,
    rebuild_fts,
)

_SEGMENT_NAME = re.compile(r"\d{6,}")
EMPTY_SHARE = 0.25  # of the catalogue's pages: beyond it, a compaction makes its file smaller


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What one write did."""

    n_added: int
    n_replaced: int
    n_rows: int
    segment: int | None  # None where there was nothing to write


class Writer(Closing):
    """The one writer of an index; holds the lock until it is closed. For one thread."""

    def __init__(self, path: Path, spec: EmbeddingSpec) -> None:
        self._path, self._spec, self._pid = path, spec, os.getpid()
        self._first_free = 0  # segment numbers below this may be in a log that was not taken back
        with storage_errors(path):
            self._lock = WriterLock(path / LOCK)
            try:
                self._connection = open_for_writing(path / CATALOGUE)
                try:
                    catalogue.refuse_newer(path, catalogue.read_count(self._connection, "format"))
                    self._pooling = catalogue.read_pooling(self._connection)
                    self._analyser = read_analyser(self._connection.execute)
                    self._renew_stems()
                    self._remove_leftovers()
                except BaseException:
                    self._connection.close()
                    raise
            except BaseException:
                self._lock.release()
                raise
        self._closed = False

    def content_digests(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The content digest of each id that is there."""
        self._check_usable()
        check_ids(ids)
        found: dict[str, bytes] = {}
        with storage_errors(self._path):
            for chunk in catalogue.chunks(list(dict.fromkeys(ids))):
                named = f"id IN ({catalogue.marks(len(chunk))}) AND {self._living()}"
                found.update(self._connection.execute(f"SELECT id, digest FROM documents WHERE {named}", chunk))
        return found

    def write(
        self, documents: Sequence[Document], spans: Sequence[Sequence[Span]], embeddings: Embeddings
    ) -> WriteReport:
        """Adds documents, or replaces those whose ids are there, in one segment and one commit: all or nothing.

        The strands hold one item for each span, document by document. Where the index pools, the multi strand is pooled
        here, whoever made it.
        """
        self._check_usable()
        check_batch(documents, spans, embeddings, self._spec, self._pooling)
        if not documents:
            return WriteReport(0, 0, 0, None)
        with storage_errors(self._path):
            number = self._next_number()
            first_doc = catalogue.next_doc(self._connection)
        rows = _rows(first_doc, spans)
        folder = segment_folder(self._path, number)

        def name_of_row(row: int) -> str:
            return f"document {documents[int(rows['docs'][row]) - first_doc].id!r}"

        def steps() -> int:
            stored, fixed = self._pooled(embeddings)
            files = write_segment(
                folder,
                rows,
                stored,
                number=number,
                name_of_row=name_of_row,
                fixed=fixed,
                codebook=self._codebook(),
            )
            self._connection.execute("BEGIN IMMEDIATE")
            n_replaced = free_ids(self._connection, self._analyser, [document.id for document in documents])
            first_row = 0
            for place, document in enumerate(documents):
                own = Placement(first_doc + place, number, first_row, len(spans[place]))
                catalogue.insert_document(self._connection, document, own, self._analyser)
                first_row += len(spans[place])
            catalogue.insert_segment(self._connection, SegmentRecord(number, first_row, files))
            catalogue.add_to_count(self._connection, "n_documents", len(documents) - n_replaced)
            return n_replaced

        n_replaced = self._commit(steps, draft=number)
        return WriteReport(len(documents) - n_replaced, n_replaced, len(rows["docs"]), number)

    def delete(self, ids: Sequence[str]) -> int:
        """Deletes by id, in one commit; says how many were there."""
        self._check_usable()
        check_ids(ids)
        return self._delete(lambda: delete_by_id(self._connection, ids))

    def delete_where(self, condition: Condition) -> int:
        """Deletes what a filter accepts, in one commit; says how many that were."""
        self._check_usable()

        def remove() -> int:
            try:
                return delete_where_sql(self._connection, condition)
            except OverflowError as error:
                raise FilterError(f"the filter has a number that is too large to compare: {error}") from None

        return self._delete(remove)

    def _delete(self, remove: Callable[[], int]) -> int:
        def steps() -> int:
            self._connection.execute("BEGIN IMMEDIATE")
            n_deleted = remove()
            catalogue.add_to_count(self._connection, "n_documents", -n_deleted)
            return n_deleted

        return self._commit(steps, draft=None)

    def create_field_index(self, name: str) -> bool:
        """Makes an index on a field of the metadata, in one commit; False if there is one."""
        self._check_usable()
        path = path_of(name)

        def steps() -> int:
            self._connection.execute("BEGIN IMMEDIATE")
            return int(add_field(self._connection, path))

        return bool(self._commit(steps, draft=None))

    def save_tuned_params(self, plan: TunedParams | None) -> None:
        """Keeps the plan that searches are to go by, in one commit; None forgets it. The index itself stays."""
        self._check_usable()

        def steps() -> int:
            self._connection.execute("BEGIN IMMEDIATE")
            write_tuned_params(self._connection, plan)
            return 0

        self._commit(steps, draft=None)

    def save_fusion_weights(self, fitted: FittedWeights | None) -> None:
        """Saves the weights of strands that hybrid search goes by; None forgets them."""
        self._check_usable()

        def steps() -> int:
            self._connection.execute("BEGIN IMMEDIATE")
            write_weights(self._connection, fitted)
            return 0

        self._commit(steps, draft=None)

    def compact(
        self,
        *,
        bits: int | None = None,
        keep_8bit: bool | None = None,
        retrain: bool = False,
        pooling: Pooling | None = None,
        n_threads: int = 1,
    ) -> CompactionReport:
        """Rewrites all live rows as one segment with the multi strand compressed to `bits` (1, 2, 4 or 8) a dimension,
        in one commit; `keep_8bit` keeps codes of 8 bits beside them. Both default to what the index has, or to 2 and no.

        Vectors that are compressed already keep their codes, and new ones are coded with the same codec; `drift` says
        how well it suits them. With other bits, with `retrain`, or once the corpus has outgrown its codebook, a new
        codec is fitted and the old codes are decoded for it, which loses a little: the vectors as they were are gone.

        With `pooling`, an index that has none is pooled, and so is all that is added later.
        """
        self._check_usable()
        if n_threads < 1:
            raise ConfigError(f"n_threads is {n_threads}; at least one thread must work")
        start = time.perf_counter()
        with storage_errors(self._path):
            number = self._next_number()
            wanted = CompactionRequest(
                bits, keep_8bit, retrain, pooling, rules=read_analysis_rules(self._connection.execute)
            )
        # Closed before the commit, so that this reader does not hold up SQLite's log; the maps stay.
        with Snapshot.open(self._path, self._spec) as snapshot:
            old, n_documents = snapshot.segments, snapshot.n_documents
        work = Compaction(old, self._spec, wanted, self._pooling, read_drift(self._connection))
        if work.is_done:  # a merge may have rewritten all segments, and leaves words and free pages to this
            self._tidy_words()
            self._give_back()
            return work.report(None, n_documents, seconds=time.perf_counter() - start)
        draft = self._replace(work, number, n_threads)
        self._remove(old)
        self._give_back()
        return work.report(draft, n_documents, seconds=time.perf_counter() - start)

    def merge(self) -> int:
        """Makes one segment of several small ones, in a commit of its own, where `plait.storage.merge_policy` says that it pays;
        says how many there were. The work is bounded, and no codec is fitted."""
        self._check_usable()
        with storage_errors(self._path):
            if not catalogue.may_merge(self._connection, at_least=FANOUT, most_dead=MOST_DEAD):
                return 0
            number = self._next_number()
        with Snapshot.open(self._path, self._spec) as snapshot:
            segments = snapshot.segments
        old = choose(segments)
        if old:
            wanted = CompactionRequest(None, None, retrain=False, merging=True, codec_of=codec_source(segments))
            self._replace(Compaction(old, self._spec, wanted, self._pooling), number, 1, run_of(old))
            self._remove(old)
        return len(old)

    def _remove(self, segments: Sequence[Segment]) -> None:
        """Takes away the files of segments that are no longer live. Readers that have them mapped keep them."""
        for segment in segments:
            # What cannot be removed now, the next writer removes.
            shutil.rmtree(segment_folder(self._path, segment.number), ignore_errors=True)

    def _tidy_words(self) -> None:
        """Takes out what is left of words that were removed, in one commit, where something is."""
        with storage_errors(self._path):
            if not fts_is_fragmented(self._connection):
                return

        def steps() -> int:
            self._connection.execute("BEGIN IMMEDIATE")
            optimize_fts(self._connection)
            return 0

        self._commit(steps, draft=None)

    def _give_back(self) -> None:
        """Makes the catalogue's file smaller where much of it is empty, which needs space for a while, and empties its
        log, which may hold what was deleted. Neither need be: readers or a full disk may stand in the way."""
        sizes = [self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")]
        if sizes[0] > EMPTY_SHARE * sizes[1]:
            with suppress(sqlite3.Error):
                self._connection.execute("VACUUM")
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout = 0")  # it would wait for readers
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * BUSY_SECONDS)}")

    def _replace(self, work: Compaction, number: int, n_threads: int, some: SegmentRun | None = None) -> NewSegment:
        """Puts a new segment in the place of those that it was made from: all, or some."""
        done = NewSegment({}, np.zeros((0, 3), np.int64), None, None)  # where no row is alive there is no segment

        def steps() -> int:
            nonlocal done
            record = None
            if work.n_rows:
                done = work.write(segment_folder(self._path, number), number=number, n_threads=n_threads)
            self._connection.execute("BEGIN IMMEDIATE")
            purge_deleted(self._connection, self._analyser, some)
            if work.n_rows:
                if work.wants_words:  # read once the graves are empty: what was deleted is no part of them
                    folder, docs = segment_folder(self._path, number), done.places[:, 0]
                    done.files[WORDS] = write_text_index(folder / WORDS, self._connection, docs, number=number)
                    sync_folder(folder)
                record = SegmentRecord(number, work.n_rows, done.files)
            catalogue.replace_segments(self._connection, record, done.places, some)
            if work.new_pooling is not None:
                catalogue.write_pooling(self._connection, work.new_pooling)
            if work.other_codes:
                mark_stale(self._connection, work.other_codes)
                write_codes_recall(self._connection, done.codes_recall)
            if done.coding is not None:
                before = None if done.coding.is_new else read_drift(self._connection)
                write_drift(self._connection, Drift.together(before, done.drift))
            return 0

        self._commit(steps, draft=number)
        self._pooling = work.new_pooling or self._pooling
        return done

    def _pooled(self, embeddings: Embeddings) -> tuple[Embeddings, int | None]:
        """The strands as the index keeps them, and the vectors of every item if each has as many."""
        if self._pooling is None or embeddings.multi is None:
            return embeddings, self._spec.fixed
        return replace(embeddings, multi=pool(embeddings.multi, self._pooling)), self._pooling.fixed

    def _codebook(self) -> Codebook | None:
        """The centroids that merges code with; None if nothing is compressed, or they cannot be read. What they are
        for, vectors near to them, makes searches faster and no more: `plait check` is who tells of damage."""
        try:
            record = None if self._spec.multi is None else catalogue.largest_with(self._connection, CODED)
            if record is None or self._spec.multi is None:
                return None
            return ResidualFile(open_file(self._path, record, CODED), record.n_rows, self._spec.multi).codebook
        except (CorruptIndexError, FileNotFoundError):
            return None

    def repair(self, steps: Callable[[], int]) -> None:
        """Does what `plait.storage.repair` has found out must be done, in one commit."""
        self._check_usable()

        def within() -> int:
            self._connection.execute("BEGIN IMMEDIATE")
            return steps()

        self._commit(within, draft=None)
        with storage_errors(self._path):
            self._remove_leftovers()

    @property
    def path(self) -> Path:
        return self._path

    @property
    def connection(self) -> sqlite3.Connection:
        """The one that commits; for the parts of plait.storage alone."""
        return self._connection

    @property
    def pooling(self) -> Pooling | None:
        """How the multi strand is pooled."""
        return self._pooling

    def _living(self) -> str:
        return not_deleted(catalogue.read_count(self._connection, "format"))

    def _next_number(self) -> int:
        return max(catalogue.read_count(self._connection, "next_segment"), self._first_free)

    def _commit(self, steps: Callable[[], int], *, draft: int | None) -> int:
        """Does the steps and commits them; whatever goes wrong, takes them back with the draft of a segment."""
        committing = False
        with storage_errors(self._path):
            try:
                answer = steps()
                catalogue.add_to_count(self._connection, "commit", 1)
                committing = True
                self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                if draft is not None and not committing:
                    shutil.rmtree(segment_folder(self._path, draft), ignore_errors=True)
                elif draft is not None:
                    # A commit that failed may still be in SQLite's log, and be found there after a crash. So its
                    # files stay as they are until the next writer has opened the catalogue and knows.
                    self._first_free = draft + 1
                raise
        return answer

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection.close()  # takes it back as well, and lets no later write join what is left of it

    def _renew_stems(self) -> None:
        """Writes all words anew, in one commit, if another version of the stemmer wrote them: this one could neither
        delete them nor find all of them."""
        if not has_outdated_stems(self._connection, self._analyser):
            return

        def steps() -> int:
            self._connection.execute("BEGIN IMMEDIATE")
            rebuild_fts(self._connection, self._analyser)
            return 0

        self._commit(steps, draft=None)

    def _remove_leftovers(self) -> None:
        """Removes the folders of writes that were killed. The catalogue is the judge, and this writer has the lock."""
        live = catalogue.segment_numbers(self._connection)
        for folder in leftovers(self._path, live):
            shutil.rmtree(folder)

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreError(f"this writer of {self._path} is closed; open another")
        if self._pid != os.getpid():
            raise StoreError(f"this writer of {self._path} belongs to process {self._pid}; open one in this process")

    def close(self) -> None:
        """Lets others write. A second call does nothing."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        try:
            with storage_errors(self._path):
                self._connection.close()
        finally:
            self._lock.release()


def leftovers(path: Path, live: set[int]) -> list[Path]:
    """The segment folders that no commit names."""
    folder = path / "segments"
    if not folder.is_dir():
        return []
    names = sorted(entry.name for entry in folder.iterdir() if _SEGMENT_NAME.fullmatch(entry.name))
    return [folder / name for name in names if int(name) not in live]


def _rows(first_doc: int, spans: Sequence[Sequence[Span]]) -> dict[str, NDArray[Any]]:
    counts = [len(own) for own in spans]
    flat = np.asarray([span for own in spans for span in own], np.int64).reshape(-1, 2)
    docs = np.repeat(np.arange(first_doc, first_doc + len(spans), dtype=np.int64), counts)
    return {"docs": docs, "starts": flat[:, 0], "ends": flat[:, 1]}
