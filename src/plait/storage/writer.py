"""The writer: adds, replaces and deletes documents, and rewrites segments. Segment files are written first, then one
transaction commits them; a write that fails or is killed at any point leaves the index unchanged."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from plait.checks import check_type
from plait.codec.codebook import Codebook
from plait.codec.pooling import Pooling, pool
from plait.codec.projection import Energy, FittedProjection, Projection
from plait.codec.train import FittedCodec
from plait.embeddings import Embeddings
from plait.encode.chunking import Chunking
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, FilterError, StoreError
from plait.filters import Condition
from plait.records import Document, FileOrigin, Span
from plait.storage import catalogue, origins
from plait.storage.attachments import (
    AttachmentRecord,
    WriteFiles,
    attachment_folder,
    delete_attachment,
    leftover_attachments,
    live_attachments,
    write_attachment,
    write_attachment_files,
)
from plait.storage.catalogue import Placement, SegmentRecord, SegmentRun
from plait.storage.codec_recall import Drift, read_drift, write_codes_recall, write_drift
from plait.storage.compaction import Compaction, CompactionReport, CompactionRequest, NewSegment
from plait.storage.connection import BUSY_SECONDS, CATALOGUE, open_for_writing
from plait.storage.deletes import delete_by_condition, delete_by_id, not_deleted, purge_deleted, purge_ids
from plait.storage.field_indexes import add_field, parse_field
from plait.storage.files.residual import RESIDUAL, ResidualFile
from plait.storage.files.text_index import TEXT_INDEX, write_text_index
from plait.storage.folder import ATTACHMENTS, SEGMENTS, remove_segment_folder, segment_numbers_on_disk
from plait.storage.fsync import storage_errors, sync_folder
from plait.storage.lock import LOCK, WriterLock
from plait.storage.merge_policy import FANOUT, MAX_DELETED_SHARE, choose_segments, codec_source, run_of
from plait.storage.network import refuse_network_disk
from plait.storage.origins import StoredRoot
from plait.storage.projections import (
    ATTACHMENT,
    StoredProjection,
    add_later_energy,
    delete_projection,
    read_projection,
    stored_spec,
    write_projection,
    write_projection_file,
)
from plait.storage.saved_settings import (
    CALIBRATION,
    Calibration,
    FittedWeights,
    TunedParams,
    mark_tuned_params_stale,
    parse_calibration,
    write_calibration,
    write_fusion_weights,
    write_tuned_params,
)
from plait.storage.schema import check_format
from plait.storage.segment import Segment, open_file, open_segment, segment_folder, write_segment
from plait.storage.snapshot import Snapshot, StoredDocument
from plait.storage.store import check_projectable
from plait.storage.validate import check_batch, check_document, check_ids
from plait.text.fts_table import (
    fts_is_fragmented,
    has_outdated_stems,
    optimize_fts,
    read_analyser,
    read_analysis_rules,
    rebuild_fts,
)

MAX_FREE_SPACE_SHARE = 0.8  # of the free space on the disk that a merge may take until its sources are removed
MAX_FREE_SHARE = 0.25  # of the catalogue's pages: with more, a compaction shrinks the file
ENCODED_AT_ONCE = 500  # documents that are encoded again by one call

# Makes the embeddings of documents again: one item for each span, document by document.
Encode = Callable[[Sequence[Document], Sequence[Sequence[Span]]], Embeddings]


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What one write did."""

    n_added: int
    n_replaced: int
    n_passages: int
    segment: int | None  # None if there was nothing to write


class Writer:
    """The one writer of an index; it holds the lock until it is closed. Not thread-safe."""

    def __init__(self, path: Path, spec: EmbeddingSpec, *, timeout: float = 0.0) -> None:
        """Waits at most `timeout` seconds for other writers."""
        self._path, self._spec, self._pid = path, spec, os.getpid()
        self._min_next_segment = 0  # lower numbers may be in SQLite's log, from a commit that failed
        self._is_committing = False  # the last transaction reached its COMMIT
        refuse_network_disk(path)
        with storage_errors(path):
            self._lock = WriterLock(path / LOCK, timeout=timeout)
            try:
                self._connection = open_for_writing(path / CATALOGUE)
                try:
                    check_format(path, catalogue.read_count(self._connection, "format"))
                    self._pooling = catalogue.read_pooling(self._connection)
                    self._wanted_projection = catalogue.read_wanted_projection(self._connection)
                    self._projection = self._read_projection()
                    self._chunking = catalogue.read_chunking(self._connection)
                    self._analyser = read_analyser(self._connection.execute)
                    self._update_stems()
                    self._remove_leftovers()
                except BaseException:
                    self._connection.close()
                    raise
            except BaseException:
                self._lock.release()
                raise
        self._closed = False

    @property
    def path(self) -> Path:
        return self._path

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection that commits; for modules of plait.storage only."""
        return self._connection

    @property
    def pooling(self) -> Pooling | None:
        """How the multi vectors are pooled."""
        return self._pooling

    @property
    def chunking(self) -> Chunking | None:
        """How documents are split into passages; None: as the encoder does."""
        return self._chunking

    def content_digests(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The content digest of each id that exists."""
        self._check_usable()
        check_ids(ids)
        digests: dict[str, bytes] = {}
        with storage_errors(self._path):
            for chunk in catalogue.chunks(list(dict.fromkeys(ids))):
                condition = f"id IN ({catalogue.placeholders(len(chunk))}) AND {not_deleted()}"
                digests.update(self._connection.execute(f"SELECT id, digest FROM documents WHERE {condition}", chunk))
        return digests

    def write(
        self, documents: Sequence[Document], spans: Sequence[Sequence[Span]], embeddings: Embeddings
    ) -> WriteReport:
        """Adds documents, or replaces those with the same ids, in one segment and one commit: all or nothing.

        The embeddings have one item for each span, document by document. If the index pools or projects multi vectors,
        that is done here.
        """
        self._check_usable()
        check_batch(documents, spans, embeddings, self._spec, self._pooling)
        if not documents:
            return WriteReport(0, 0, 0, None)
        with storage_errors(self._path):
            number = self._next_segment()
            first_doc = catalogue.next_doc(self._connection)
        rows = _row_arrays(first_doc, spans)

        def name_of_row(row: int) -> str:
            return f"document {documents[int(rows['docs'][row]) - first_doc].id!r}"

        with self._new_segment(number) as folder:
            pooled, fixed = self._pooled(embeddings)
            stored, energy = self._projected(pooled)
            files = write_segment(
                folder,
                rows,
                stored,
                number=number,
                name_of_row=name_of_row,
                fixed=fixed,
                codebook=self._codebook(),
                projection=self._projection_number,
            )
            with self._transaction():
                n_replaced = purge_ids(self._connection, self._analyser, [document.id for document in documents])
                first_row = 0
                for position, document in enumerate(documents):
                    n_rows = len(spans[position])
                    placement = Placement(first_doc + position, number, first_row, n_rows)
                    catalogue.insert_document(self._connection, document, placement, self._analyser)
                    first_row += n_rows
                catalogue.insert_segment(self._connection, SegmentRecord(number, first_row, files))
                catalogue.add_to_count(self._connection, "n_documents", len(documents) - n_replaced)
                add_later_energy(self._connection, energy)
        return WriteReport(len(documents) - n_replaced, n_replaced, len(rows["docs"]), number)

    def delete(self, ids: Sequence[str]) -> int:
        """Deletes documents by id, in one commit; returns how many existed."""
        self._check_usable()
        check_ids(ids)
        with self._transaction():
            n_deleted = delete_by_id(self._connection, ids)
            catalogue.add_to_count(self._connection, "n_documents", -n_deleted)
        return n_deleted

    def delete_where(self, condition: Condition) -> int:
        """Deletes the documents that a filter accepts, in one commit; returns how many."""
        self._check_usable()
        with self._transaction():
            try:
                n_deleted = delete_by_condition(self._connection, condition)
            except OverflowError as error:
                raise FilterError(f"the filter has a number that is too large to compare: {error}") from None
            catalogue.add_to_count(self._connection, "n_documents", -n_deleted)
        return n_deleted

    def update_metadata(self, changes: Mapping[str, Mapping[str, Any]], *, replace_all: bool = False) -> int:
        """Changes the metadata of documents, in one commit; returns how many are different now. Embeddings and full
        text stay. DocumentError, and no change, if an id does not exist or a value cannot be stored."""
        self._check_usable()
        with storage_errors(self._path):
            updates = catalogue.metadata_updates(self._connection, changes, not_deleted(), replace_all=replace_all)
        if updates:
            with self._transaction():
                catalogue.write_metadata(self._connection, updates)
        return len(updates)

    def origins_of(self, ids: Sequence[str]) -> dict[str, tuple[int, FileOrigin | None]]:
        """The number and the file of each of these documents that exists."""
        self._check_usable()
        with storage_errors(self._path):
            return origins.origins_of(self._connection.execute, ids)

    def same_content(self, documents: Sequence[Document]) -> set[str]:
        """The ids of the documents that exist with the same title, text and sections."""
        self._check_usable()
        with storage_errors(self._path):
            return origins.same_content(self._connection.execute, documents)

    def rewrite_records(self, changes: Sequence[tuple[str, Document]]) -> int:
        """Gives documents another id and other metadata, in one commit; see plait.storage.origins. Embeddings stay."""
        self._check_usable()
        for _, document in changes:
            check_document(document)
        with self._transaction():
            return origins.rewrite_records(self._connection, self._analyser, changes)

    def read_roots(self) -> list[StoredRoot]:
        """The folders that were indexed."""
        self._check_usable()
        with storage_errors(self._path):
            return origins.read_roots(self._connection.execute)

    def save_roots(self, roots: Sequence[StoredRoot]) -> None:
        """Saves the folders that were indexed, in one commit; no commit if they are as they were."""
        if list(roots) != self.read_roots():
            with self._transaction():
                origins.write_roots(self._connection, roots)

    def next_doc(self) -> int:
        """The number of the next document: lower ones were written before."""
        self._check_usable()
        with storage_errors(self._path):
            return catalogue.next_doc(self._connection)

    def create_field_index(self, name: str) -> bool:
        """Creates an index on a metadata field, in one commit; False if the field has one."""
        self._check_usable()
        path = parse_field(name)
        with self._transaction():
            return add_field(self._connection, path)

    def save_tuned_params(self, params: TunedParams | None) -> None:
        """Saves the params that searches use by default, in one commit; None removes them."""
        self._check_usable()
        with self._transaction():
            write_tuned_params(self._connection, params)

    def save_fusion_weights(self, fitted: FittedWeights | None) -> None:
        """Saves the weights that hybrid search uses by default, in one commit; None removes them."""
        self._check_usable()
        with self._transaction():
            write_fusion_weights(self._connection, fitted)

    def calibration(self) -> tuple[Calibration | None, int]:
        """The saved calibration, if it can be read, and the number of documents."""
        self._check_usable()
        with storage_errors(self._path):
            sql = "SELECT key, value FROM meta WHERE key IN (?, 'n_documents')"
            rows = dict(self._connection.execute(sql, [CALIBRATION]).fetchall())
        return parse_calibration(rows.get(CALIBRATION)).usable, int(rows.get("n_documents") or 0)

    def save_calibration(self, calibration: Calibration | None) -> None:
        """Saves what scores mean on this index, in one commit; None removes it."""
        self._check_usable()
        with self._transaction():
            write_calibration(self._connection, calibration)

    def attach(self, name: str, write: WriteFiles) -> int:
        """Writes the files of an attachment and makes them live, in one commit, instead of those that it had; returns
        its number. See plait.storage.attachments."""
        self._check_usable()
        _check_attachable(name)
        with storage_errors(self._path):
            number = self._next_segment()
        with self._new_folder(attachment_folder(self._path, number), number):
            record = write_attachment_files(self._path, name, number, write)
            with self._transaction():
                write_attachment(self._connection, record)
        self._remove_old_attachments()
        return number

    def detach(self, name: str) -> None:
        """Removes an attachment, in one commit."""
        self._check_usable()
        _check_attachable(name)
        with self._transaction():
            delete_attachment(self._connection, name)
        self._remove_old_attachments()

    def adopt_projection(self, fitted: FittedProjection) -> None:
        """Makes the projection of another index that of this one, in one commit, so that both give the same scores. The
        index must be empty: vectors of its own would be whole."""
        self._check_usable()
        if fitted.width != self._spec.multi:
            raise ConfigError(
                f"the projection takes vectors of {fitted.width} dimensions, and the model gives {self._spec.multi}; "
                f"take that of an index with the same model"
            )
        with storage_errors(self._path):
            number = self._next_segment()
            if catalogue.segment_numbers(self._connection):
                raise ConfigError(f"{self._path} has documents already; a projection is taken over by an empty index")
        wanted = Projection(dims=fitted.dims, centred=bool(fitted.mean.any()))
        with ExitStack() as stack:
            attached = self._write_projection(fitted, number, stack)
            with self._transaction():
                catalogue.write_wanted_projection(self._connection, wanted)
                write_projection(self._connection, attached, fitted, 0)
        self._wanted_projection = wanted
        with storage_errors(self._path):
            self._projection = self._read_projection()

    def compact(
        self,
        *,
        bits: int | None = None,
        keep_8bit: bool | None = None,
        retrain: bool = False,
        pooling: Pooling | None = None,
        centroids: NDArray[np.float32] | None = None,
        centroid_ids: NDArray[np.integer] | None = None,
        projection: Projection | Literal[False] | None = None,
        encode: Encode | None = None,
        codec: FittedCodec | None = None,
        n_threads: int = 1,
    ) -> CompactionReport:
        """Rewrites all live rows as one segment, in one commit, with the multi vectors compressed to `bits` (1, 2, 4 or
        8) per dimension; `keep_8bit` also stores 8-bit codes. By default both stay as they are, or are 2 and False.

        Compressed vectors keep their codes, and new vectors are coded with the same codec; `drift` of the report says
        how well it fits them. Other bits, `retrain`, or a corpus that has outgrown its codebook lead to a new codec:
        the old codes are decoded for it, which loses a little, because the float vectors are gone.

        With `pooling`, an index without pooling is pooled, and so is everything that is added later. A new codec takes
        `centroids` (cells, dim) instead of training some, and with `centroid_ids` each vector, in the order of the
        documents, has the centroid of this number and not the nearest. `codec` is used instead of one that is kept or
        fitted, so that the shards of a cluster share one.

        `projection` is fitted to the vectors as soon as there are enough, and everything that is added later is
        projected; False wants none. The whole vectors are gone afterwards. So another projection, or none, needs
        `encode`, which makes the embeddings of all documents again; it also fits the same projection again.
        """
        self._check_usable()
        if n_threads < 1:
            raise ConfigError(f"n_threads is {n_threads}; it must be at least 1")
        start = time.perf_counter()
        wanted = self._wanted_after(projection, can_encode=encode is not None)
        with storage_errors(self._path):
            rules = read_analysis_rules(self._connection.execute)
        with ExitStack() as stack:
            # Closed before the commit, so that this reader does not hold up SQLite's log; the memory maps stay.
            with Snapshot.open(self._path, self._spec) as snapshot:
                old, n_documents, spec = snapshot.segments, snapshot.n_documents, snapshot.spec
                segments = old if encode is None else self._encoded_again(snapshot, encode, stack)
            is_whole = self._projection is None or encode is not None
            with storage_errors(self._path):
                number = self._next_segment()
                next_number = self._next_segment(after=number)
            request = CompactionRequest(
                bits,
                keep_8bit,
                retrain,
                pooling,
                analysis_rules=rules,
                centroids=centroids,
                centroid_ids=centroid_ids,
                codec=codec,
                projection=wanted if is_whole else None,
                projection_number=None if is_whole else self._projection_number,
                new_number=next_number,
            )
            compaction = Compaction(
                segments,
                self._spec if is_whole else spec,
                request,
                self._pooling,
                None if encode is not None else read_drift(self._connection),
                None if encode is None else old,
            )
            if compaction.is_done:  # a merge may have rewritten all segments; it optimizes neither words nor free pages
                self._save_wanted(wanted)
                self._optimize_words()
                self._shrink_catalogue()
                return compaction.report(None, n_documents, seconds=time.perf_counter() - start)
            new = self._replace_segments(compaction, number, n_threads, wanted=wanted, projection_number=next_number)
            self._remove_folders(old)
            self._remove_old_attachments()  # after the segments: see plait.storage.projections
        self._shrink_catalogue()
        return compaction.report(new, n_documents, seconds=time.perf_counter() - start)

    def _wanted_after(self, requested: Projection | Literal[False] | None, *, can_encode: bool) -> Projection | None:
        """The projection that the index is to have; ConfigError if its vectors do not allow it."""
        if requested is None or requested is False:
            wanted = self._wanted_projection if requested is None else None
        else:
            check_type(
                "projection", requested, Projection, "a plait.Projection, such as Projection(dims=128)", ConfigError
            )
            check_projectable(self._spec, requested)
            wanted = requested
        if self._projection is not None and wanted != self._wanted_projection and not can_encode:
            stored = f"{self._projection.facts.dims} of {self._projection.facts.width} dimensions"
            raise ConfigError(
                f"the index stores {stored}, and the whole vectors are gone; encode the texts again (plait compact "
                f"--refit), or build the index again"
            )
        return wanted

    def _encoded_again(self, snapshot: Snapshot, encode: Encode, stack: ExitStack) -> tuple[Segment, ...]:
        """All documents of a snapshot in segments with whole vectors. No commit lists these segments; they are removed
        when the stack ends, or by the next writer."""
        encoded = []
        for segment in sorted(snapshot.segments, key=lambda segment: segment.span):
            live = np.arange(segment.n_rows) if segment.live is None else np.flatnonzero(segment.live)
            docs = np.unique(segment.docs[live])
            for start in range(0, len(docs), ENCODED_AT_ONCE):
                stored = snapshot.fetch(docs[start : start + ENCODED_AT_ONCE].tolist())
                encoded.append(self._encode_segment(segment, stored, encode, stack))
        return tuple(encoded)

    def _encode_segment(
        self, segment: Segment, stored: Sequence[StoredDocument], encode: Encode, stack: ExitStack
    ) -> Segment:
        documents = [Document(one.id, one.text, one.title, one.metadata, one.sections, one.origin) for one in stored]
        rows = np.concatenate([np.arange(one.first_row, one.first_row + one.n_rows) for one in stored])
        arrays = {"docs": segment.docs[rows], "starts": segment.starts[rows], "ends": segment.ends[rows]}
        bounds = list(zip(arrays["starts"].tolist(), arrays["ends"].tolist(), strict=True))
        spans, first = [], 0
        for one in stored:
            spans.append([Span(*bound) for bound in bounds[first : first + one.n_rows]])
            first += one.n_rows
        embeddings = encode(documents, spans)
        check_batch(documents, spans, embeddings, self._spec, self._pooling)
        names = [one.id for one in stored for _ in range(one.n_rows)]
        with storage_errors(self._path):
            number = self._next_segment()
        stack.callback(self._remove_folder, number)
        with self._new_segment(number) as folder:
            pooled, fixed = self._pooled(embeddings)
            files = write_segment(
                folder,
                arrays,
                pooled,
                number=number,
                name_of_row=lambda row: f"document {names[row]!r}",
                fixed=fixed,
            )
        return open_segment(self._path, SegmentRecord(number, len(rows), files), self._spec, None)

    def _save_wanted(self, wanted: Projection | None) -> None:
        if wanted != self._wanted_projection:
            with self._transaction():
                catalogue.write_wanted_projection(self._connection, wanted)
            self._wanted_projection = wanted

    def merge(self) -> int:
        """Merges small segments into one, in one commit, if `plait.storage.merge_policy` says that it pays; returns how
        many. No codec is fitted. A merge for which the disk has no space is left out: merges are optional."""
        self._check_usable()
        with storage_errors(self._path):
            if not catalogue.may_need_merge(self._connection, min_segments=FANOUT, max_deleted_share=MAX_DELETED_SHARE):
                return 0
            number = self._next_segment()
        with Snapshot.open(self._path, self._spec) as snapshot:
            segments = snapshot.segments
        free = shutil.disk_usage(self._path).free
        old = choose_segments(segments, max_bytes=MAX_FREE_SPACE_SHARE * free)
        if old:
            request = CompactionRequest(
                None,
                None,
                retrain=False,
                is_merge=True,
                codec_source=codec_source(segments),
                projection_number=self._projection_number,
            )
            self._replace_segments(Compaction(old, snapshot.spec, request, self._pooling), number, 1, run_of(old))
            self._remove_folders(old)
        return len(old)

    @contextmanager
    def repair_transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction for `plait.storage.repair`; folders that no segment uses any more are removed after it."""
        self._check_usable()
        with self._transaction():
            yield self._connection
        with storage_errors(self._path):
            self._remove_leftovers()

    def close(self) -> None:
        """Releases the lock. A second call does nothing."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        try:
            with storage_errors(self._path):
                self._connection.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commits the changes of the block, or rolls all of them back."""
        with storage_errors(self._path):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                catalogue.add_to_count(self._connection, "commit", 1)
                self._is_committing = True
                self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection.close()  # this rolls back as well, and no later write can join the transaction

    def _new_segment(self, number: int) -> AbstractContextManager[Path]:
        return self._new_folder(segment_folder(self._path, number), number)

    @contextmanager
    def _new_folder(self, folder: Path, number: int) -> Iterator[Path]:
        """Gives the folder of a new segment or attachment, and removes it if the block fails before its commit."""
        self._is_committing = False
        with storage_errors(self._path):
            try:
                yield folder
            except BaseException:
                if self._is_committing:
                    # A commit that failed may still be in SQLite's log and reappear after a crash. So its files stay
                    # until the next writer has opened the catalogue and knows.
                    self._min_next_segment = max(self._min_next_segment, number + 1)
                else:
                    self._remove_folder(number, folder.parent.name)
                raise

    def _next_segment(self, after: int = -1) -> int:
        """The number of the next segment or attachment; above `after`, which is taken but not on disk yet."""
        number = max(catalogue.read_count(self._connection, "next_segment"), self._min_next_segment, after + 1)
        # A folder that plait did not write is left alone, and its number is not used.
        taken = {*segment_numbers_on_disk(self._path), *segment_numbers_on_disk(self._path, ATTACHMENTS)}
        while number in taken:
            number += 1
        return number

    def _replace_segments(
        self,
        compaction: Compaction,
        number: int,
        n_threads: int,
        run: SegmentRun | None = None,
        *,
        wanted: Projection | None = None,
        projection_number: int = 0,
    ) -> NewSegment:
        """Replaces the segments of `run`, or all, by the new one. Without a live row there is no new segment. A
        projection that was fitted becomes the attachment `projection_number`, in the same commit."""
        new = NewSegment({}, np.zeros((0, 3), np.int64), None, None)
        record, attached = None, None
        with ExitStack() as stack:
            folder = stack.enter_context(self._new_segment(number))
            if compaction.n_rows:
                new = compaction.write(folder, number=number, n_threads=n_threads)
            if new.projection is not None:
                attached = self._write_projection(new.projection, projection_number, stack)
            with self._transaction():
                purge_deleted(self._connection, self._analyser, run)
                if compaction.n_rows:
                    if compaction.needs_text_index:  # after the purge: it must not have words of deleted documents
                        docs = new.documents[:, 0]
                        new.files[TEXT_INDEX] = write_text_index(
                            folder / TEXT_INDEX, self._connection, docs, number=number
                        )
                        sync_folder(folder)
                    record = SegmentRecord(number, compaction.n_rows, new.files)
                catalogue.replace_segments(self._connection, record, new.documents, run)
                self._save_codec_facts(compaction, new)
                if run is None:
                    self._save_projection(compaction, new.projection, attached, wanted)
        self._pooling = compaction.new_pooling or self._pooling
        if run is None:
            self._wanted_projection = wanted
            with storage_errors(self._path):
                self._projection = self._read_projection()
        return new

    def _write_projection(self, fitted: FittedProjection, number: int, stack: ExitStack) -> AttachmentRecord:
        """Writes the file of a projection; it is removed if the stack ends before its commit."""
        stack.enter_context(self._new_folder(attachment_folder(self._path, number), number))
        return write_attachment_files(
            self._path, ATTACHMENT, number, lambda folder: write_projection_file(folder, fitted)
        )

    def _save_projection(
        self,
        compaction: Compaction,
        fitted: FittedProjection | None,
        attached: AttachmentRecord | None,
        wanted: Projection | None,
    ) -> None:
        if wanted != self._wanted_projection:
            catalogue.write_wanted_projection(self._connection, wanted)
        if fitted is not None and attached is not None:
            write_projection(self._connection, attached, fitted, compaction.n_vectors)
        elif compaction.is_encoded_again and self._projection is not None:
            delete_projection(self._connection)
        else:
            return
        write_calibration(self._connection, None)  # scores of multi vectors have other bounds now

    def _save_codec_facts(self, compaction: Compaction, new: NewSegment) -> None:
        if compaction.new_pooling is not None:
            catalogue.write_pooling(self._connection, compaction.new_pooling)
        if compaction.codes_change:
            mark_tuned_params_stale(self._connection, compaction.codes_change)
            write_codes_recall(self._connection, new.codes_recall)
        if new.coding is not None:
            drift_before = None if new.coding.is_new else read_drift(self._connection)
            write_drift(self._connection, Drift.combined(drift_before, new.drift))

    def _remove_folders(self, segments: Sequence[Segment]) -> None:
        """Removes the files of replaced segments. Readers that have mapped them keep them."""
        for segment in segments:
            self._remove_folder(segment.number)

    def _remove_folder(self, number: int, within: str = SEGMENTS) -> None:
        with suppress(OSError, StoreError):  # the next writer removes a folder that cannot be removed now
            remove_segment_folder(self._path, number, within)

    def _remove_leftovers(self) -> None:
        """Removes the folders of writes that were killed: no commit lists them, and no other writer is active. A folder
        with files that plait did not write stays; `check` names it."""
        live = catalogue.segment_numbers(self._connection)
        for number in segment_numbers_on_disk(self._path):
            if number not in live:
                remove_segment_folder(self._path, number)
        for number in self._old_attachments():
            remove_segment_folder(self._path, number, ATTACHMENTS)

    def _remove_old_attachments(self) -> None:
        for number in self._old_attachments():
            self._remove_folder(number, ATTACHMENTS)

    def _old_attachments(self) -> list[int]:
        live = live_attachments(self._connection.execute)
        return [] if live is None else leftover_attachments(self._path, live)

    def _optimize_words(self) -> None:
        with storage_errors(self._path):
            if not fts_is_fragmented(self._connection):
                return
        with self._transaction():
            optimize_fts(self._connection)

    def _update_stems(self) -> None:
        """Rebuilds the full text if another version of the stemmer wrote it: this version could neither delete its
        words nor find all of them."""
        if has_outdated_stems(self._connection, self._analyser):
            with self._transaction():
                rebuild_fts(self._connection, self._analyser)

    def _shrink_catalogue(self) -> None:
        """Shrinks the catalogue's file if much of it is free, which needs space for a while, and empties its log, which
        may have deleted texts. Both are optional: readers or a full disk may prevent them."""
        n_free, n_pages = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
        )
        if n_free > MAX_FREE_SHARE * n_pages:
            with suppress(sqlite3.Error):
                self._connection.execute("VACUUM")
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout = 0")  # do not wait for readers
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * BUSY_SECONDS)}")

    def _pooled(self, embeddings: Embeddings) -> tuple[Embeddings, int | None]:
        """The embeddings as the index stores them, and the number of multi vectors of every item, if there is one."""
        if self._pooling is None or embeddings.multi is None:
            return embeddings, self._spec.fixed
        return replace(embeddings, multi=pool(embeddings.multi, self._pooling)), self._pooling.fixed

    def _projected(self, embeddings: Embeddings) -> tuple[Embeddings, Energy]:
        """The embeddings as the index stores them, and the energy of the vectors that were projected."""
        if self._projection is None or embeddings.multi is None:
            return embeddings, Energy()
        values, energy = self._projection.fitted.measured(embeddings.multi.values)
        return replace(embeddings, multi=replace(embeddings.multi, values=values)), energy

    def _read_projection(self) -> StoredProjection | None:
        return read_projection(lambda sql, parameters: self._connection.execute(sql, parameters), self._path)

    @property
    def _projection_number(self) -> int | None:
        return None if self._projection is None else self._projection.number

    def _codebook(self) -> Codebook | None:
        """The centroids of the codec that merges use; None if nothing is compressed, or if they cannot be read. They
        only make searches of new vectors faster, so damage is left to `plait check`."""
        dim = stored_spec(self._spec, self._projection).multi
        if dim is None:
            return None
        try:
            record = catalogue.largest_segment_with(self._connection, RESIDUAL)
            if record is None:
                return None
            file = open_file(self._path, record, RESIDUAL)
            file.verify("centroids")
            return ResidualFile(file, record.n_rows, dim).codebook
        except (StoreError, FileNotFoundError):
            return None

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreError(f"this writer of {self._path} is closed; open another")
        if self._pid != os.getpid():
            raise StoreError(f"this writer of {self._path} belongs to process {self._pid}; open one in this process")


def _check_attachable(name: str) -> None:
    if name == ATTACHMENT:
        raise StoreError(f"{ATTACHMENT!r} is the attachment of the index's own projection; choose another name")


def _row_arrays(first_doc: int, spans: Sequence[Sequence[Span]]) -> dict[str, NDArray[Any]]:
    """The arrays of rows.plait for a batch."""
    counts = [len(document_spans) for document_spans in spans]
    flat = np.asarray([span for document_spans in spans for span in document_spans], np.int64).reshape(-1, 2)
    docs = np.repeat(np.arange(first_doc, first_doc + len(spans), dtype=np.int64), counts)
    return {"docs": docs, "starts": flat[:, 0], "ends": flat[:, 1]}
