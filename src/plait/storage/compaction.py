"""Compaction: all live rows of an index become one segment with compressed multi vectors. A merge does the same for a
few neighbouring segments, without fitting a codec. This module decides how and writes the new segment; `Writer` commits
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.checks import check_flag, check_type
from plait.codec.dense_ivf import DenseIvf
from plait.codec.packing import check_bits
from plait.codec.pooling import Pooling
from plait.codec.projection import MAX_SAMPLE, FittedProjection, Projection, fit_projection
from plait.codec.train import MIN_ROWS, ROWS_PER_CELL, FittedCodec, cells_for, fit, sample_rows, sample_size
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, InputError
from plait.storage.codec_recall import Drift, measure_codes_recall, measure_drift
from plait.storage.files.centroid_ids import CENTROID_IDS, write_centroid_ids
from plait.storage.files.dense_ivf import DENSE_IVF, needs_dense_ivf, reusable_centroids, write_dense_ivf
from plait.storage.files.residual import CODEC_ARRAYS, RESIDUAL, ResidualFile, equal_codecs, same_codec
from plait.storage.files.sparse import SPARSE, write_merged_sparse
from plait.storage.files.text_index import needs_text_index
from plait.storage.folder import create_segment_folder
from plait.storage.fsync import sync_folder
from plait.storage.merge import (
    Coding,
    LiveRows,
    dense_array,
    live_parts,
    multi_arrays,
    row_arrays,
    sample_vectors,
    write_residual,
)
from plait.storage.merge_policy import MIN_COMPRESSED_VECTORS, codec_source
from plait.storage.segment import DENSE, MULTI, ROWS, Segment, multi_attributes
from plait.storage.segment_file import FileRecord, SegmentFile, write_file
from plait.storage.store import check_poolable
from plait.storage.verification import verify_again

DEFAULT_BITS = 2
SEED = 0
# A codebook is kept until the corpus needs this many times its centroids: it has then grown sixteenfold, and coding the
# old part again loses little beside what the new part gains.
OUTGROWN = 4
# It is also replaced if this share of all vectors came later and their error is this much larger.
RETRAIN_SHARE, RETRAIN_DRIFT = 0.25, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What a compaction did. Bytes are those of segment files."""

    n_documents: int
    n_passages: int
    n_vectors: int  # multi vectors
    n_segments_before: int
    n_segments_after: int
    bytes_before: int
    bytes_after: int
    bits: int | None  # per dimension of the multi vectors; None if they are not compressed
    n_centroids: int | None
    bytes_per_vector: float | None  # of the file of multi vectors
    pooling: str = ""  # how vectors were pooled by this compaction
    dims: int | None = None  # of the multi vectors, if this compaction has fitted a projection
    energy: float | None = None  # the share of the vectors' energy that this projection keeps
    drift: float | None  # error of the vectors coded with a codec that was kept, relative to its error when fitted
    codes_recall: float | None = None  # share of the best 10 by float vectors that the codes keep; None if not measured
    note: str = ""  # why something was not done
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """What the caller asked for; None keeps what the index has, or the default."""

    bits: int | None
    keep_8bit: bool | None
    retrain: bool
    pooling: Pooling | None = None
    is_merge: bool = False  # of some segments: no codec is fitted, and few vectors stay float16
    codec_source: Segment | None = None  # for a merge: the segment whose codec the index uses
    analysis_rules: str = ""  # of the full text; see plait.text.fts_table
    centroids: NDArray[np.float32] | None = None  # for a codec to be fitted: those of another codec of these vectors
    centroid_ids: NDArray[np.integer] | None = None  # which of `centroids` that codec gave each vector, in their order
    # The projection to fit if there are enough vectors; None for vectors that are not whole, but projected already.
    projection: Projection | None = None
    projection_number: int | None = None  # of the projection that the vectors have passed; None if they are whole
    new_number: int = 0  # for a projection that is fitted
    codec: FittedCodec | None = None  # to code with, instead of one that is kept or fitted: shards share a codec

    def __post_init__(self) -> None:
        if self.bits is not None:
            check_bits(self.bits)
        if self.keep_8bit is not None:
            check_flag("keep_8bit", self.keep_8bit)
        check_flag("retrain", self.retrain)
        if self.centroids is not None and (self.centroids.ndim != 2 or not np.all(np.isfinite(self.centroids))):
            raise InputError(f"centroids must be finite numbers of (cells, dim); their shape is {self.centroids.shape}")
        if self.centroid_ids is not None:
            _check_centroid_ids(self.centroid_ids, self.centroids)
        if self.pooling is not None:
            check_type("pooling", self.pooling, Pooling, "a plait.Pooling, such as Pooling(fixed=32)", ConfigError)


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment that is written but not committed."""

    files: dict[str, FileRecord]
    documents: NDArray[np.int64]  # (documents, 3): number, first row, number of rows
    coding: Coding | None
    drift: Drift | None
    codes_recall: float | None = None
    projection: FittedProjection | None = None  # that was fitted


class Compaction:
    """How the segments of a snapshot become one segment."""

    def __init__(
        self,
        segments: Sequence[Segment],
        spec: EmbeddingSpec,
        request: CompactionRequest,
        pooling: Pooling | None = None,
        drift: Drift | None = None,
        replaced: Sequence[Segment] | None = None,
    ) -> None:
        """`pooling` is that of the index; the request may repeat it, or name the first. `drift` is that of the vectors
        coded since the codec was fitted. `replaced` are the segments of the index, if `segments` are not: their
        documents were encoded again."""
        self._spec, self._segments = spec, segments
        self._replaced, self.is_encoded_again = (segments, False) if replaced is None else (replaced, True)
        self.new_pooling = _new_pooling(pooling, request.pooling, spec)
        final_pooling = self.new_pooling or pooling
        self._fixed = spec.fixed if final_pooling is None else final_pooling.fixed
        _verify_sources(segments, request.codec_source)
        self.parts = self._checked_parts()
        self.n_rows = sum(len(part.rows) for part in self.parts)
        self.n_vectors = sum(part.n_vectors for part in self.parts)
        self.new_projection = self._projection_to_fit(request)
        # Of the projection that the new vectors have passed: the one to fit, or the one that the index has.
        fitted_number = request.new_number if self.new_projection is not None else None
        self._projection_number = fitted_number or request.projection_number
        self._coded = [part.segment for part in self.parts if part.segment.coded is not None]
        # The segment whose codec may be kept; None if there is none, or if the segments have several codecs.
        self._source = self._coded[0] if self._coded and _all_same_codec(self._coded) else None
        # Documents that were encoded again get codes as they had them.
        last_coded = codec_source(self._replaced) if self.is_encoded_again else self._source
        codes = None if last_coded is None else last_coded.residual_file
        has_8bit = codes is not None and codes.codec_8bit is not None
        self._bits = request.bits or (DEFAULT_BITS if codes is None else codes.codec.bits)
        self._given = request.codec
        self._keep_8bit = has_8bit if request.keep_8bit is None else request.keep_8bit
        if self._given is not None:
            self._check_given(request)
            self._bits, self._keep_8bit = self._given.codec.bits, self._given.codec_8bit is not None
        self._keep_codec = self._can_keep_codec(request)
        self._centroids = request.centroids
        if self._centroids is not None and self._centroids.shape[1] != spec.multi:
            raise InputError(
                f"the centroids have {self._centroids.shape[1]} dimensions, the multi vectors {spec.multi}"
            )
        self._centroid_ids = request.centroid_ids
        if self._centroid_ids is not None:
            self._check_one_for_each_vector(self._centroid_ids)
        self._why_not_projected = self._reason_not_to_project(request)
        self.notes: list[str] = [self._why_not_projected] if self._why_not_projected and self._coded else []
        self._is_merge, self._rules = request.is_merge, request.analysis_rules
        if self._is_merge:
            self._source, self._keep_codec = request.codec_source, request.codec_source is not None
        elif self._keep_codec and self._given is None:
            self._keep_codec = self._codec_still_fits(drift)
        self._why_uncompressed = self._reason_not_to_compress()
        self.notes += [self._why_uncompressed] if self._why_uncompressed else []
        if not self._why_uncompressed and request.keep_8bit:
            self._check_8bit_possible()
        if self.new_pooling is not None and self._coded:
            self.notes.append("compressed vectors were decoded before pooling: their float values are gone")
        if self.new_projection is not None and self._coded:
            self.notes.append(
                "compressed vectors were decoded to fit the projection: their float values are gone (--refit encodes "
                "the texts again)"
            )
        unchanged_8bit = self._keep_8bit == has_8bit
        self._vectors_unchanged = (
            unchanged_8bit if self._keep_codec else bool(self._why_uncompressed) and not self._coded
        )

    @property
    def is_done(self) -> bool:
        """Whether the index is as a compaction would leave it."""
        if self.new_pooling is not None or self.new_projection is not None or self.is_encoded_again:
            return False
        if not self._segments:
            return True
        is_single = len(self._segments) == 1 and self._segments[0].live is None
        return is_single and self._vectors_unchanged and self._has_optional_files(self._segments[0])

    def _has_optional_files(self, segment: Segment) -> bool:
        has_text_index = segment.text_index_file is not None and segment.text_index_file.rules == self._rules
        return self._needs_dense_ivf == (segment.dense_ivf_file is not None) and self.needs_text_index == has_text_index

    @property
    def needs_text_index(self) -> bool:
        """Whether the new segment gets a text index. That of a merge would not cover the whole index."""
        n_documents = sum(int(np.count_nonzero(np.diff(part.segment.docs[part.rows]))) + 1 for part in self.parts)
        return not self._is_merge and needs_text_index(n_documents)

    @property
    def _needs_dense_ivf(self) -> bool:
        """A merge, which must be fast, only keeps an inverted file up to date."""
        if self._spec.dense is None or not needs_dense_ivf(self.n_rows):
            return False
        return not self._is_merge or self._largest_dense_ivf is not None

    @property
    def _largest_dense_ivf(self) -> DenseIvf | None:
        segments = [part.segment for part in self.parts if part.segment.dense_ivf_file is not None]
        return max(segments, key=lambda segment: segment.n_rows).dense_ivf if segments else None

    @property
    def codes_change(self) -> str:
        """Why params that were tuned for the present codes do not suit the new ones; empty if they do."""
        if self._is_merge:
            return ""
        if not self._keep_codec:
            return "the vectors were coded again"
        items = None if self._source is None else self._source.coded
        has_8bit = items is not None and items.codes_8bit is not None
        return "" if self._keep_8bit == has_8bit else "the 8-bit codes were dropped"

    @property
    def bytes_before(self) -> int:
        return sum(file.record.nbytes for segment in self._replaced for file in segment.files.values())

    def write(self, folder: Path, *, number: int, n_threads: int) -> NewSegment:
        """Writes the new folder and makes it durable."""
        create_segment_folder(folder)
        attributes = {"segment": number}
        files = {ROWS: write_file(folder / ROWS, "rows", row_arrays(self.parts), attributes=attributes)}
        if self._spec.dense is not None:
            dense = [dense_array(self.parts, self._spec.dense)]
            files[DENSE] = write_file(folder / DENSE, "dense", dense, attributes=attributes)
            if self._needs_dense_ivf:
                values = SegmentFile.open(folder / DENSE).array("values", "<f4", (self.n_rows, self._spec.dense))
                reuse = reusable_centroids(self._largest_dense_ivf, self.n_rows)
                files[DENSE_IVF] = write_dense_ivf(
                    folder / DENSE_IVF, values, number=number, reuse=reuse, n_threads=n_threads
                )
        if self._spec.sparse is not None:
            files[SPARSE] = write_merged_sparse(folder / SPARSE, self.parts, number=number)
        coding, drift, recall = None, None, None
        projection = self._fit_projection()
        if projection is not None:
            self.parts = [replace(part, projection=projection) for part in self.parts]
        dim = self._dim
        if dim is not None and self._why_uncompressed:
            self._write_uncompressed(folder, files, number, dim)
        elif dim is not None:
            coding = self._coding(n_threads)
            coded_file = write_residual(folder, self.parts, coding, number=number, n_threads=n_threads)
            files[RESIDUAL] = coded_file.record
            if not coding.is_new and coded_file.error is not None:
                drift = Drift(coded_file.n_coded, coded_file.error / max(coding.fitted.error, 1e-12))
            if coding.is_new:
                written = ResidualFile(SegmentFile.open(folder / RESIDUAL), self.n_rows, dim)
                recall = measure_codes_recall(self.parts, written.items(), n_threads=n_threads, seed=SEED)
        sync_folder(folder)
        return NewSegment(files, document_rows(self.parts), coding, drift, recall, projection)

    @property
    def _dim(self) -> int | None:
        """The dimensions of the multi vectors that are written."""
        return self._spec.multi if self.new_projection is None else self.new_projection.dims

    def _projection_to_fit(self, request: CompactionRequest) -> Projection | None:
        """The projection to fit now; None if there is none, or if there are too few vectors."""
        wanted, width = request.projection, self._spec.multi
        if request.is_merge or wanted is None or width is None or self.n_vectors < wanted.needed_vectors(width):
            return None
        return wanted

    def _reason_not_to_project(self, request: CompactionRequest) -> str:
        """Why a projection that is wanted is not fitted; empty if none is wanted, or if it is."""
        if request.is_merge or request.projection is None or self.new_projection is not None:
            return ""
        needed = request.projection.needed_vectors(self._spec.multi or 0)
        few = f"{self.n_vectors:,} vectors are too few to fit a projection to {request.projection}"
        return f"{few}, and stay whole; it takes {needed:,}"

    def _fit_projection(self) -> FittedProjection | None:
        if self.new_projection is None:
            return None
        positions = sample_rows(self.n_vectors, min(self.n_vectors, MAX_SAMPLE), seed=SEED)
        return fit_projection(sample_vectors(self.parts, positions), self.new_projection)

    def _write_uncompressed(self, folder: Path, files: dict[str, FileRecord], number: int, dim: int) -> None:
        arrays = multi_arrays(self.parts, dim, fixed=self._fixed)
        files[MULTI] = write_file(
            folder / MULTI, "multi", arrays, attributes=multi_attributes(number, self._fixed, self._projection_number)
        )
        if self._is_merge and self._source is not None:
            vectors = SegmentFile.open(folder / MULTI).array("values", "<f2", (None, dim))
            codebook = fitted_codec(self._source, keep_8bit=False).codec.codebook
            files[CENTROID_IDS] = write_centroid_ids(folder / CENTROID_IDS, vectors, codebook, number=number)

    def report(self, new: NewSegment | None, n_documents: int, *, seconds: float) -> CompactionReport:
        """What was done; without a new segment, that there was nothing to do."""
        n_before = len(self._replaced)
        files = {} if new is None else new.files
        bytes_after = self.bytes_before if new is None else sum(record.nbytes for record in files.values())
        codec = None if new is None or new.coding is None else new.coding.fitted.codec
        if new is None and self._source is not None and self._source.coded is not None:
            codec, files = self._source.coded.codec, {RESIDUAL: self._source.files[RESIDUAL].record}
        multi = files.get(RESIDUAL) or files.get(MULTI)
        return CompactionReport(
            n_documents=n_documents,
            n_passages=self.n_rows,
            n_vectors=self.n_vectors,
            n_segments_before=n_before,
            n_segments_after=n_before if new is None else int(bool(files)),
            bytes_before=self.bytes_before,
            bytes_after=bytes_after,
            bits=None if codec is None else codec.bits,
            n_centroids=None if codec is None else len(codec.codebook),
            bytes_per_vector=multi.nbytes / self.n_vectors if multi is not None and self.n_vectors else None,
            drift=None if new is None or new.drift is None else new.drift.ratio,
            codes_recall=None if new is None else new.codes_recall,
            pooling="" if self.new_pooling is None else str(self.new_pooling),
            dims=None if new is None or new.projection is None else new.projection.dims,
            energy=None if new is None or new.projection is None else new.projection.energy.share,
            note="; ".join(self.notes) or ("the index is compact already" if new is None else ""),
            seconds=seconds,
        )

    def _reason_not_to_compress(self) -> str:
        """Why the multi vectors stay uncompressed; empty if they are to be compressed."""
        if self._dim is None:
            return "the index has no multi vectors to compress"
        if self._dim % 8:
            return f"vectors of {self._dim} dimensions cannot be compressed; it takes a multiple of 8"
        if self._is_merge:
            file = None if self._source is None else self._source.residual_file
            is_small = file is None or self.n_vectors < max(MIN_COMPRESSED_VECTORS, ROWS_PER_CELL * len(file.codebook))
            return "merged vectors stay float16" if is_small and not self._coded else ""
        if self._why_not_projected and not self._coded:
            return self._why_not_projected  # as float16: directions that are fitted later should not see codes
        if not self._keep_codec and self._given is None and self.n_vectors < MIN_ROWS:
            return f"{self.n_vectors} vectors are too few to compress and stay float16; it takes {MIN_ROWS}"
        return ""

    def _check_8bit_possible(self) -> None:
        for segment in self._coded:
            if segment.coded is not None and segment.coded.codes_8bit is None:
                raise ConfigError(
                    f"8-bit codes are made from float vectors, but segment {segment.number} has only codes of "
                    f"{segment.coded.codec.bits} bits; leave keep_8bit out, or build the index again"
                )

    def _can_keep_codec(self, request: CompactionRequest) -> bool:
        items = self._source.coded if self._source is not None else None
        if items is None or request.retrain or self._bits != items.codec.bits:
            return False
        if self.new_pooling is not None or self.new_projection is not None:
            return False
        if self._given is not None:
            has_8bit = items.codes_8bit is not None
            return equal_codecs(items.codec, self._given.codec) and has_8bit == (self._given.codec_8bit is not None)
        return cells_for(self.n_vectors) < OUTGROWN * len(items.codec.codebook)

    def _check_given(self, request: CompactionRequest) -> None:
        assert self._given is not None
        if request.bits is not None or request.keep_8bit is not None or request.retrain:
            raise ConfigError("a codec that is given has its bits and is not fitted again; leave these options out")
        if self._spec.multi is not None and self._given.codec.dim != self._spec.multi:
            raise ConfigError(
                f"the codec is for vectors of {self._given.codec.dim} dimensions, and the index has "
                f"{self._spec.multi}; fit a codec to vectors of the same model"
            )

    def _check_one_for_each_vector(self, centroid_ids: NDArray[np.integer]) -> None:
        if self.new_pooling is not None or self.new_projection is not None:
            raise ConfigError("vectors that are pooled or projected have no centroids yet; leave centroid_ids out")
        if len(centroid_ids) != self.n_vectors:
            raise InputError(f"there are {len(centroid_ids):,} centroid_ids for {self.n_vectors:,} multi vectors")

    def _codec_still_fits(self, saved_drift: Drift | None) -> bool:
        """Whether the codec also fits the vectors that came since it was fitted."""
        new_parts = [part for part in self.parts if part.segment.coded is None]
        assert self._source is not None
        fitted = fitted_codec(self._source, keep_8bit=False)
        drift = Drift.combined(saved_drift, measure_drift(new_parts, fitted, seed=SEED))
        if drift is None or drift.n_vectors < RETRAIN_SHARE * self.n_vectors or drift.ratio < RETRAIN_DRIFT:
            return True
        self.notes.append(
            f"the codec was fitted again: the error of {drift.n_vectors:,} later vectors was {drift.ratio:.2f} times "
            f"that "
            f"of the vectors it was fitted to"
        )
        return False

    def _coding(self, n_threads: int) -> Coding:
        if self._keep_codec:
            assert self._source is not None
            reused = frozenset(segment.number for segment in self._coded)
            fitted = fitted_codec(self._source, keep_8bit=self._keep_8bit)
            return Coding(fitted, reused, is_new=False, fixed=self._fixed, projection=self._projection_number)
        if self._given is not None:
            return Coding(self._given, fixed=self._fixed, projection=self._projection_number)
        n_cells = cells_for(self.n_vectors) if self._centroids is None else len(self._centroids)
        positions = sample_rows(self.n_vectors, sample_size(self.n_vectors, n_cells), seed=SEED)
        fitted = fit(
            sample_vectors(self.parts, positions),
            bits=self._bits,
            n_cells=n_cells,
            keep_8bit=self._keep_8bit,
            n_threads=n_threads,
            seed=SEED,
            centroids=self._centroids,
            cells=None if self._centroid_ids is None else self._centroid_ids[positions],
        )
        return Coding(fitted, fixed=self._fixed, projection=self._projection_number, centroid_ids=self._centroid_ids)

    def _checked_parts(self) -> list[LiveRows]:
        try:
            parts = live_parts(self._segments, self.new_pooling)
            wrong = [part for part in parts if self._fixed is not None and np.any(part.lengths != self._fixed)]
        except InputError as error:
            raise ConfigError(f"a passage has no vectors, and cannot be pooled to {self._fixed}: {error}") from error
        if wrong:
            raise CorruptIndexError(
                f"the index has {self._fixed} vectors for every passage, but segment {wrong[0].segment.number} does "
                f"not; "
                f"run plait check"
            )
        return parts


def _verify_sources(segments: Sequence[Segment], codec_source: Segment | None) -> None:
    """Compares all that will be copied with its checksums, or damage would get valid ones. The files are read again: a
    disk may have damaged them since they were last verified."""
    for segment in segments:
        for file in segment.files.values():
            verify_again(file)
    if codec_source is not None and codec_source not in segments:
        codec_source.files[RESIDUAL].verify(*CODEC_ARRAYS)


def _check_centroid_ids(ids: NDArray[np.integer], centroids: NDArray[np.float32] | None) -> None:
    if centroids is None:
        raise InputError("centroid_ids are numbers of centroids; give centroids as well")
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError(f"centroid_ids must be one integer for each vector; got {ids.dtype} of shape {ids.shape}")
    if len(ids) and not (ids.min() >= 0 and ids.max() < len(centroids)):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise InputError(f"centroid_ids has {wrong}; there are {len(centroids)} centroids, numbered from 0")


def _new_pooling(current: Pooling | None, requested: Pooling | None, spec: EmbeddingSpec) -> Pooling | None:
    """The pooling to apply now; None if there is nothing to pool."""
    if requested is None or requested == current:
        return None
    if current is not None:
        raise ConfigError(
            f"the index pools its vectors already ({current}) and cannot pool them in another way ({requested}): the "
            f"vectors before pooling are gone. Leave pooling out, or build the index again"
        )
    check_poolable(spec)
    return requested


def document_rows(parts: Sequence[LiveRows]) -> NDArray[np.int64]:
    """Where the documents of the parts will be: number, first row and number of rows of each."""
    docs = np.concatenate([part.segment.docs[part.rows] for part in parts])
    if np.any(docs[1:] < docs[:-1]):
        raise CorruptIndexError("the rows of a segment are not in the order of their documents; run plait check")
    return np.stack(np.unique(docs, return_index=True, return_counts=True), axis=1)


def fitted_codec(segment: Segment, *, keep_8bit: bool) -> FittedCodec:
    """The codec of a compressed segment, with that of its 8-bit codes if they are to be kept."""
    file = segment.residual_file
    assert file is not None
    file.check_codecs()
    return FittedCodec(file.codec, file.codec_8bit if keep_8bit else None, file.error)


def _all_same_codec(coded: Sequence[Segment]) -> bool:
    first = coded[0].coded
    return first is not None and all(other.coded is not None and same_codec(first, other.coded) for other in coded[1:])
