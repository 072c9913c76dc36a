"""The projection of an index: the attachment `projection`, and what the catalogue says about it.

projection.plait   mean (width,), directions (width, dims), float32; attributes format, n_vectors, before, after
meta               `projection`: number of the attachment, width, dims, vectors that the index had at the fit, and the
                   energy of the sample that it was fitted to; `projection_energy`: the energy of later vectors

A compaction that rewrites all segments fits the projection and commits it with them, so all segments of a commit hold
projected vectors, or none does. Their files of multi vectors have the attribute `projection`: the number of the
attachment that they were projected with. An index with a projection has format 2, which an older plait refuses; without
one the format is 1. The wish for a projection is a property of the index and changes no format.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from plait.codec.projection import Energy, FittedProjection
from plait.embeddings import Embeddings
from plait.encode.protocol import EmbeddingSpec
from plait.errors import CorruptIndexError, InputError, NewerFormatError, PlaitError
from plait.locks import once_property
from plait.storage.attachments import (
    AttachmentRecord,
    Rows,
    delete_attachment,
    open_attachment_file,
    read_attachment,
    write_attachment,
)
from plait.storage.catalogue import delete_meta, write_meta
from plait.storage.schema import FIRST_FORMAT, PROJECTED_FORMAT
from plait.storage.segment_file import ArraySource, FileRecord, SegmentFile, write_file
from plait.storage.stored_values import stored_json
from plait.storage.verification import verify_before_use

ATTACHMENT, FILE = "projection", "projection.plait"
FORMAT = 1  # of projection.plait
PROJECTION, LATER_ENERGY = "projection", "projection_energy"  # keys of meta
MAX_WIDTH = 1 << 16
# A fit is outdated if later vectors are this share of all, and it keeps this much less of their energy.
OUTDATED_SHARE, OUTDATED_LOSS = 0.25, 0.05
ADVICE = "restore the index from a copy, or encode its texts again with plait compact --refit"


@dataclass(frozen=True, slots=True)
class ProjectionFacts:
    """What the catalogue says about the projection."""

    number: int  # of the attachment
    width: int
    dims: int
    n_vectors: int  # that the index had at the fit
    energy: Energy  # of the sample that it was fitted to
    later: Energy = Energy()  # noqa: RUF009 -- frozen; of vectors that were projected since


def is_outdated(facts: ProjectionFacts) -> bool:
    """Whether vectors that were added later are many, and the projection keeps clearly less of them."""
    share = facts.later.n_vectors / max(facts.n_vectors + facts.later.n_vectors, 1)
    return share >= OUTDATED_SHARE and facts.later.share < facts.energy.share - OUTDATED_LOSS


class StoredProjection:
    """The projection of one commit. Its file is mapped now, compared with its checksums when it is first used, and
    readable also after a later commit has replaced it. If it cannot be read, searches over multi vectors raise that;
    others work."""

    def __init__(self, facts: ProjectionFacts, file: SegmentFile | Exception) -> None:
        self.facts, self._file = facts, file

    @property
    def number(self) -> int:
        return self.facts.number

    @property
    def file(self) -> SegmentFile | None:
        """None if it cannot be read."""
        return self._file if isinstance(self._file, SegmentFile) else None

    @once_property
    def fitted(self) -> FittedProjection:
        """The mean and the directions."""
        if isinstance(self._file, Exception):
            raise CorruptIndexError(f"the projection of the index cannot be read ({self._file}); {ADVICE}")
        verify_before_use(self._file)
        return parse_file(self._file, self.facts)

    def project(self, embeddings: Embeddings) -> Embeddings:
        """The embeddings with projected multi vectors; InputError if these are not as wide as the model's."""
        if embeddings.multi is None:
            return embeddings
        if embeddings.multi.dim != self.facts.width:
            raise InputError(
                f"the multi vectors have {embeddings.multi.dim} dimensions, but the model of the index gives "
                f"{self.facts.width}; the index projects them to {self.facts.dims} itself"
            )
        return replace(embeddings, multi=self.fitted.project_items(embeddings.multi))


def stored_spec(spec: EmbeddingSpec, projection: StoredProjection | ProjectionFacts | None) -> EmbeddingSpec:
    """The sizes of the vectors that the segments hold. `spec` is that of the model."""
    if projection is None:
        return spec
    facts = projection.facts if isinstance(projection, StoredProjection) else projection
    if spec.multi != facts.width:
        raise CorruptIndexError(
            f"the catalogue is damaged: its projection takes vectors of {facts.width} dimensions, and the model gives "
            f"{spec.multi}"
        )
    return replace(spec, multi=facts.dims)


# -- the catalogue


def read_facts(rows: Rows) -> ProjectionFacts | None:
    """What the catalogue says; None without a projection. Opens no file."""
    keys = f"SELECT key, value FROM meta WHERE key IN ('{PROJECTION}', '{LATER_ENERGY}')"
    values: dict[str, Any] = dict(rows(keys, []))
    if PROJECTION not in values:
        return None
    try:
        raw: Any = stored_json(values[PROJECTION])
        facts = ProjectionFacts(raw["number"], raw["width"], raw["dims"], raw["n_vectors"], _energy(raw["energy"]))
        later = _energy(stored_json(values[LATER_ENERGY])) if LATER_ENERGY in values else Energy()
        sizes = (facts.number, facts.width, facts.dims)
        is_valid = all(type(size) is int and size >= 1 for size in sizes) and facts.dims <= facts.width <= MAX_WIDTH
        is_valid = is_valid and type(facts.n_vectors) is int and facts.n_vectors >= 0
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptIndexError(f"the projection in the catalogue is damaged ({error!r:.100}); {ADVICE}") from None
    if not is_valid:
        raise CorruptIndexError(f"the projection in the catalogue is damaged: {values[PROJECTION]!r:.200}; {ADVICE}")
    return replace(facts, later=later)


def read_projection(rows: Rows, index: Path) -> StoredProjection | None:
    """The projection of the commit that is being read; None without one. Read it before the segments are opened: a
    compaction that replaces it removes theirs first, so that a missing file of a segment says to read again."""
    facts = read_facts(rows)
    if facts is None:
        return None
    file: SegmentFile | Exception
    try:
        record = read_attachment(rows, ATTACHMENT)
        if record is None or record.number != facts.number:
            raise CorruptIndexError(f"the catalogue lists no attachment {ATTACHMENT!r} with the number {facts.number}")
        file = open_attachment_file(index, record, FILE)
    except (PlaitError, OSError) as error:
        file = error
    return StoredProjection(facts, file)


def write_projection(
    connection: sqlite3.Connection, record: AttachmentRecord, fitted: FittedProjection, n_vectors: int
) -> None:
    """Makes a projection live, within the transaction that lists the segments that were projected with it. `n_vectors`
    is the number of vectors in these segments."""
    write_attachment(connection, record)
    facts = {
        "number": record.number,
        "width": fitted.width,
        "dims": fitted.dims,
        "n_vectors": n_vectors,
        "energy": asdict(fitted.energy),
    }
    write_meta(connection, PROJECTION, json.dumps(facts))
    delete_meta(connection, LATER_ENERGY)
    write_meta(connection, "format", PROJECTED_FORMAT)


def delete_projection(connection: sqlite3.Connection) -> None:
    """Removes the projection, within the transaction that lists segments with whole vectors."""
    delete_attachment(connection, ATTACHMENT)
    delete_meta(connection, PROJECTION)
    delete_meta(connection, LATER_ENERGY)
    write_meta(connection, "format", FIRST_FORMAT)


def add_later_energy(connection: sqlite3.Connection, energy: Energy) -> None:
    """Adds the energy of vectors that were projected; a step of the transaction that adds them."""
    facts = read_facts(lambda sql, parameters: connection.execute(sql, parameters))
    if facts is not None and energy.n_vectors:
        write_meta(connection, LATER_ENERGY, json.dumps(asdict(facts.later + energy)))


def _energy(raw: Mapping[str, Any]) -> Energy:
    energy = Energy(raw["n_vectors"], float(raw["before"]), float(raw["after"]))
    is_finite = math.isfinite(energy.before) and math.isfinite(energy.after)
    if (
        type(energy.n_vectors) is not int
        or energy.n_vectors < 0
        or not is_finite
        or min(energy.before, energy.after) < 0
    ):
        raise ValueError(f"the energy is {raw!r:.100}")
    return energy


# -- the file


def write_projection_file(folder: Path, fitted: FittedProjection) -> dict[str, FileRecord]:
    """Writes projection.plait into the folder of the attachment."""
    arrays = [ArraySource.of("mean", "<f4", fitted.mean), ArraySource.of("directions", "<f4", fitted.directions)]
    attributes: dict[str, int | float | str] = {"format": FORMAT, **asdict(fitted.energy)}
    return {FILE: write_file(folder / FILE, ATTACHMENT, arrays, attributes=attributes)}


def parse_file(file: SegmentFile, facts: ProjectionFacts) -> FittedProjection:
    """The projection of a file that was compared with its checksums; all values are checked."""
    number = file.attributes.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise NewerFormatError(
            f"{file.path} has projection format {number}, but this plait reads up to {FORMAT}; install a newer plait"
        )
    if number != FORMAT:
        raise file.damaged(f"attribute 'format' is {number!r:.50}")
    mean = file.array("mean", "<f4", (facts.width,))
    directions = file.array("directions", "<f4", (facts.width, facts.dims))
    try:
        energy = _energy(file.attributes)
    except (KeyError, ValueError, TypeError) as error:
        raise file.damaged(f"its energy cannot be read ({error})") from None
    with file.checking():
        return FittedProjection(mean.copy(), directions.copy(), energy)
