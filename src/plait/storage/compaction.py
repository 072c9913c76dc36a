"""Compaction: all live rows of an index as one segment, with the multi strand compressed. This file decides how and
writes the new segment; `Writer.compact` makes it live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.codec.dense_ivf import DenseIvf
from plait.codec.packing import check_bits
from plait.codec.pooling import Pooling
from plait.codec.train import MIN_ROWS, ROWS_PER_CELL, FittedCodec, cells_for, fit, sample_rows, sample_size
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, InputError
from plait.storage.codec_recall import codes_recall
from plait.storage.compress import Coding, write_residual
from plait.storage.drift import Drift, drift_of
from plait.storage.files.centroid_ids import NEAR, write_centroid_ids
from plait.storage.files.dense_ivf import CELLS, are_wanted, centroids_to_keep, write_dense_ivf
from plait.storage.files.residual import CODED, ResidualFile, same_codec
from plait.storage.files.sparse import SPARSE
from plait.storage.files.sparse_merge import write_merged
from plait.storage.files.text_index import are_wanted as words_are_wanted
from plait.storage.fsync import sync_folder
from plait.storage.merge import Part, dense_array, multi_arrays, parts_of, row_arrays, sample_of
from plait.storage.merge_policy import CODED_FROM
from plait.storage.segment import Segment, verify_once
from plait.storage.segment_file import FileRecord, SegmentFile
from plait.storage.segment_file_writer import write_file
from plait.storage.store import check_poolable

DEFAULT_BITS = 2
SEED = 0
# A codebook is kept until the corpus wants this many times its cells: it has then grown sixteenfold, and what is lost
# by coding the old part anew is little beside what the new part gains.
OUTGROWN = 4
# It is also given up where a quarter of all vectors lose a quarter more than those that it was fitted to.
RETRAIN_SHARE, RETRAIN_DRIFT = 0.25, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What a compaction did. Bytes are those of segment files."""

    n_documents: int
    n_rows: int  # passages
    n_vectors: int  # of the multi strand
    n_segments_before: int
    n_segments_after: int
    bytes_before: int
    bytes_after: int
    bits: int | None  # of a dimension of the multi strand; None where it is not compressed
    n_cells: int | None
    bytes_a_vector: float | None  # of the multi strand's file
    pooling: str = ""  # how vectors were pooled now, for the first time
    drift: float | None  # error of vectors coded with a codec that was kept, over its error when it was fitted
    codes_recall: float | None = None  # share of the vectors' best 10 that the codes keep; None if it was not measured
    note: str = ""  # why something was not done
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """What the caller asked for; None is what the index has, or else the default."""

    bits: int | None
    keep_8bit: bool | None
    retrain: bool
    pooling: Pooling | None = None
    merging: bool = False  # some segments of an index: no codec is fitted, and what is few stays float16
    codec_of: Segment | None = None  # for a merge: the segment whose codec the index goes by
    rules: str = ""  # that the words of the full text are made by

    def __post_init__(self) -> None:
        if self.bits is not None:
            check_bits(self.bits)


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A new segment that is on the disk and not yet live."""

    files: dict[str, FileRecord]
    places: NDArray[np.int64]  # (documents, 3): number, first row, count of rows
    coding: Coding | None
    drift: Drift | None
    codes_recall: float | None = None


def _new_pooling(has: Pooling | None, wanted: Pooling | None, spec: EmbeddingSpec) -> Pooling | None:
    """What is to be pooled now; None if nothing is, or all is already."""
    if wanted is None or wanted == has:
        return None
    if has is not None:
        raise ConfigError(
            f"the index pools already ({has}), and cannot pool in another way ({wanted}): the vectors as they were are "
            f"gone. Leave pooling out, or build the index again"
        )
    check_poolable(spec)
    return wanted


class Compaction:
    """How the segments of a snapshot become one."""

    def __init__(
        self,
        segments: Sequence[Segment],
        spec: EmbeddingSpec,
        wanted: CompactionRequest,
        pooling: Pooling | None = None,
        drift: Drift | None = None,
    ) -> None:
        """`pooling` is what the index has; what is wanted must be that, or the first. `drift` is that of vectors that
        were coded since the codec was fitted."""
        self._spec, self._segments = spec, segments
        self.new_pooling = _new_pooling(pooling, wanted.pooling, spec)
        in_effect = self.new_pooling or pooling
        self._fixed = spec.fixed if in_effect is None else in_effect.fixed
        for segment in segments:
            for file in segment.files.values():
                verify_once(file)  # or damage would be copied, and get checksums that say it is sound
        self.parts = self._checked_parts()
        self.n_rows = sum(len(part.rows) for part in self.parts)
        self.n_vectors = sum(part.n_vectors for part in self.parts)
        coded = [part.segment for part in self.parts if part.segment.coded is not None]
        self._coded, self._first = coded, coded[0] if coded and _alike(coded) else None  # None: no one codec is there
        there = None if self._first is None else self._first.coded
        self._bits = wanted.bits or (DEFAULT_BITS if there is None else there.codec.bits)
        has_fine = there is not None and there.codes_8bit is not None
        self._fine = has_fine if wanted.keep_8bit is None else wanted.keep_8bit
        self._keeps = self._can_keep(wanted)
        self.notes: list[str] = []
        self._merging, self._rules = wanted.merging, wanted.rules
        if self._merging:
            self._first, self._keeps = wanted.codec_of, wanted.codec_of is not None
        elif self._keeps:
            self._keeps = self._still_suits(drift)
        self._uncoded = self._why_not_coded()
        self.notes += [self._uncoded] if self._uncoded else []
        if not self._uncoded and wanted.keep_8bit:
            self._refuse_fine()
        if self.new_pooling is not None and coded:
            decoded = "what was compressed was pooled as its codes stand for it: the vectors as they were are gone"
            self.notes.append(decoded)
        self._as_it_is = self._fine == has_fine if self._keeps else bool(self._uncoded) and not coded

    @property
    def is_done(self) -> bool:
        """Whether the index is as a compaction would leave it."""
        if self.new_pooling is not None:
            return False
        if not self._segments:
            return True
        whole = len(self._segments) == 1 and self._segments[0].live is None
        return whole and self._as_it_is and self._has_what_it_wants(self._segments[0])

    def _has_what_it_wants(self, segment: Segment) -> bool:
        has_words = segment.text_index_file is not None and segment.text_index_file.rules == self._rules
        return self._wants_cells == (segment.dense_ivf_file is not None) and self.wants_words == has_words

    @property
    def wants_words(self) -> bool:
        """Whether the full text of all documents is kept in a segment too. A merge of some cannot have it."""
        n_documents = sum(int(np.count_nonzero(np.diff(part.segment.docs[part.rows]))) + 1 for part in self.parts)
        return not self._merging and words_are_wanted(n_documents)

    @property
    def _wants_cells(self) -> bool:
        """Whether the dense strand is kept in cells too. A merge, which is to be quick, makes none where none were."""
        if self._spec.dense is None or not are_wanted(self.n_rows):
            return False
        return not self._merging or self._largest_cells is not None

    @property
    def _largest_cells(self) -> DenseIvf | None:
        there = [part.segment for part in self.parts if part.segment.dense_ivf_file is not None]
        return max(there, key=lambda segment: segment.n_rows).dense_ivf if there else None

    @property
    def other_codes(self) -> str:
        """Why settings that were tuned for the codes there are do not suit those that will be; empty if they do."""
        if self._merging:
            return ""
        if not self._keeps:
            return "the vectors were coded anew"
        has_fine = (
            self._first is not None and self._first.coded is not None and self._first.coded.codes_8bit is not None
        )
        return "" if self._fine == has_fine else "the fine codes were dropped"

    @property
    def bytes_before(self) -> int:
        return sum(file.record.nbytes for segment in self._segments for file in segment.files.values())

    def write(self, folder: Path, *, number: int, n_threads: int) -> NewSegment:
        """Writes the new folder and makes it durable."""
        folder.mkdir(parents=True)
        own = {"segment": number}
        files = {"rows.plait": write_file(folder / "rows.plait", "rows", row_arrays(self.parts), attributes=own)}
        if self._spec.dense is not None:
            dense = [dense_array(self.parts, self._spec.dense)]
            files["dense.plait"] = write_file(folder / "dense.plait", "dense", dense, attributes=own)
            if self._wants_cells:
                written_dense = SegmentFile.open(folder / "dense.plait")
                values = written_dense.array("values", "<f4", (self.n_rows, self._spec.dense))
                kept = centroids_to_keep(self._largest_cells, self.n_rows)
                files[CELLS] = write_dense_ivf(folder / CELLS, values, number=number, kept=kept, n_threads=n_threads)
        if self._spec.sparse is not None:
            files[SPARSE] = write_merged(folder / SPARSE, self.parts, number=number)
        coding, drift, recall = None, None, None
        if self._spec.multi is not None and self._uncoded:
            multi = multi_arrays(self.parts, self._spec.multi, fixed=self._fixed)
            attributes = own if self._fixed is None else {**own, "fixed": self._fixed}
            files["multi.plait"] = write_file(folder / "multi.plait", "multi", multi, attributes=attributes)
            if self._merging and self._first is not None and self._first.coded is not None:
                vectors = SegmentFile.open(folder / "multi.plait").array("values", "<f2", (None, self._spec.multi))
                codebook = self._first.coded.codec.codebook
                files[NEAR] = write_centroid_ids(folder / NEAR, vectors, codebook, number=number)
        elif self._spec.multi is not None:
            coding = self._coding(n_threads)
            compressed = write_residual(folder, self.parts, coding, number=number, n_threads=n_threads)
            files[CODED] = compressed.record
            if not coding.is_new and compressed.error is not None:
                drift = Drift(compressed.n_coded, compressed.error / max(coding.fitted.error, 1e-12))
            if coding.is_new:
                written = ResidualFile(SegmentFile.open(folder / CODED), self.n_rows, self._spec.multi)
                recall = codes_recall(self.parts, written.items(), n_threads=n_threads, seed=SEED)
        sync_folder(folder)
        sync_folder(folder.parent)
        return NewSegment(files, places_of(self.parts), coding, drift, recall)

    def report(self, draft: NewSegment | None, n_documents: int, *, seconds: float) -> CompactionReport:
        """What was done; without a draft, that there was nothing to do."""
        n_before = len(self._segments)
        files = {} if draft is None else draft.files
        bytes_after = self.bytes_before if draft is None else sum(facts.nbytes for facts in files.values())
        coding = None if draft is None else draft.coding
        codec = coding.fitted.codec if coding is not None else None
        if draft is None and self._first is not None and self._first.coded is not None:
            codec, files = self._first.coded.codec, {CODED: self._first.files[CODED].record}
        multi = files.get(CODED) or files.get("multi.plait")
        return CompactionReport(
            n_documents=n_documents,
            n_rows=self.n_rows,
            n_vectors=self.n_vectors,
            n_segments_before=n_before,
            n_segments_after=n_before if draft is None else int(bool(files)),
            bytes_before=self.bytes_before,
            bytes_after=bytes_after,
            bits=None if codec is None else codec.bits,
            n_cells=None if codec is None else len(codec.codebook),
            bytes_a_vector=multi.nbytes / self.n_vectors if multi is not None and self.n_vectors else None,
            drift=None if draft is None or draft.drift is None else draft.drift.ratio,
            codes_recall=None if draft is None else draft.codes_recall,
            pooling="" if self.new_pooling is None else str(self.new_pooling),
            note="; ".join(self.notes) or ("the index is compact already" if draft is None else ""),
            seconds=seconds,
        )

    def _why_not_coded(self) -> str:
        """Why the multi strand stays as it is; empty if it is to be compressed."""
        if self._spec.multi is None:
            return "the index has no multi strand to compress"
        if self._spec.multi % 8:
            return f"vectors of {self._spec.multi} dimensions cannot be compressed; it takes a multiple of 8"
        if self._merging:
            codec = self._first.coded.codec if self._first is not None and self._first.coded is not None else None
            few = codec is None or self.n_vectors < max(CODED_FROM, ROWS_PER_CELL * len(codec.codebook))
            return "what is merged stays float16" if few and not self._coded else ""
        if not self._keeps and self.n_vectors < MIN_ROWS:
            return f"{self.n_vectors} vectors are too few to compress and are kept as float16; it takes {MIN_ROWS}"
        return ""

    def _refuse_fine(self) -> None:
        for segment in self._coded:
            if segment.coded is not None and segment.coded.codes_8bit is None:
                raise ConfigError(
                    f"fine codes need the vectors as they were, and segment {segment.number} keeps only codes of "
                    f"{segment.coded.codec.bits} bits; leave fine out, or build the index again"
                )

    def _can_keep(self, wanted: CompactionRequest) -> bool:
        there = self._first.coded if self._first is not None else None
        if there is None or wanted.retrain or self.new_pooling is not None or self._bits != there.codec.bits:
            return False
        return cells_for(self.n_vectors) < OUTGROWN * len(there.codec.codebook)

    def _still_suits(self, before: Drift | None) -> bool:
        """Whether the codec is kept though vectors of another kind may have come since it was fitted."""
        new = [part for part in self.parts if part.segment.coded is None]
        assert self._first is not None
        drift = Drift.together(before, drift_of(new, fitted_of(self._first, keep_8bit=False), seed=SEED))
        if drift is None or drift.n_vectors < RETRAIN_SHARE * self.n_vectors or drift.ratio < RETRAIN_DRIFT:
            return True
        self.notes.append(
            f"the compression was fitted anew: {drift.n_vectors:,} vectors that came since the last time lose "
            f"{drift.ratio:.2f} times what the first ones did"
        )
        return False

    def _coding(self, n_threads: int) -> Coding:
        if self._keeps:
            assert self._first is not None
            kept = frozenset(segment.number for segment in self._coded)
            return Coding(fitted_of(self._first, keep_8bit=self._fine), kept, is_new=False, fixed=self._fixed)
        n_cells = cells_for(self.n_vectors)
        places = sample_rows(self.n_vectors, sample_size(self.n_vectors, n_cells), seed=SEED)
        fitted = fit(
            sample_of(self.parts, places),
            bits=self._bits,
            n_cells=n_cells,
            keep_8bit=self._fine,
            n_threads=n_threads,
            seed=SEED,
        )
        return Coding(fitted, fixed=self._fixed)

    def _checked_parts(self) -> list[Part]:
        try:
            parts = parts_of(self._segments, self.new_pooling)
            odd = [part for part in parts if self._fixed is not None and np.any(part.lengths != self._fixed)]
        except InputError as error:
            raise ConfigError(f"a passage has no vectors, and cannot be pooled to {self._fixed}: {error}") from error
        if odd:
            raise CorruptIndexError(
                f"the index keeps {self._fixed} vectors for every passage, and segment {odd[0].segment.number} does "
                f"not; run plait check"
            )
        return parts


def places_of(parts: Sequence[Part]) -> NDArray[np.int64]:
    """Where the documents of the parts will be: number, first row and count of rows of each."""
    docs = np.concatenate([part.segment.docs[part.rows] for part in parts])
    if np.any(docs[1:] < docs[:-1]):
        raise CorruptIndexError("the rows of a segment are not in the order of their documents; run plait check")
    return np.stack(np.unique(docs, return_index=True, return_counts=True), axis=1)


def fitted_of(segment: Segment, *, keep_8bit: bool) -> FittedCodec:
    """The codec of a compressed segment, with its fine codes if they are wanted and there."""
    assert segment.coded is not None
    assert segment.residual_file is not None
    own = segment.coded.codes_8bit
    return FittedCodec(
        segment.coded.codec, own[0] if keep_8bit and own is not None else None, segment.residual_file.error
    )


def _alike(coded: Sequence[Segment]) -> bool:
    first = coded[0].coded
    return first is not None and all(other.coded is not None and same_codec(first, other.coded) for other in coded[1:])
