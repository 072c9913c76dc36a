"""Indexes with a projection: fitted by a compaction, committed with its segments, applied to every later write and
query."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import plait
import reference
from encoders import WordEncoder
from plait.codec.pooling import Pooling, pool
from plait.codec.projection import Projection
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.load import EXTERNAL
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, InputError, NewerFormatError, StoreError
from plait.records import Document, Span
from plait.scoring.maxsim import maxsim, top_k
from plait.storage import projections, schema, verification, writer
from plait.storage.backup import backup
from plait.storage.check import check
from plait.storage.info import info
from plait.storage.projections import ATTACHMENT, FILE, is_outdated
from plait.storage.repair import repair
from plait.storage.store import Store

WIDTH, DIMS = 32, 8
SPEC = EmbeddingSpec(dense=4, multi=WIDTH)
PROJECTION = Projection(dims=DIMS, min_vectors=300)
Batch = tuple[list[Document], list[list[Span]], Embeddings]


def tokens(n_rows: int, *, seed: int, basis: int = 5) -> NDArray[np.float32]:
    """Unit rows around a common mean, that vary in few directions and a little in all; `basis` chooses them."""
    directions = np.random.default_rng(basis).standard_normal((WIDTH, WIDTH)) * (0.75 ** np.arange(WIDTH))[:, None]
    rows = np.random.default_rng(seed).standard_normal((n_rows, WIDTH)) @ directions + 1.0
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def batch(first: int, n_documents: int, *, basis: int = 5) -> Batch:
    """Documents of two passages, of 5 and 3 vectors."""
    numbers = range(first, first + n_documents)
    documents = [Document(f"d{n}", f"word{n % 7} text{n}") for n in numbers]
    rows = [tokens(8, seed=n, basis=basis) for n in numbers]
    items = [part for one in rows for part in (one[:5], one[5:])]
    dense = np.random.default_rng(first).standard_normal((2 * n_documents, 4), dtype=np.float32)
    spans = [[Span(0, 4), Span(4, 8)]] * n_documents
    return documents, spans, Embeddings(dense=dense, multi=MultiVectors.from_items(items))


def encode_again(documents: Sequence[Document], spans: Sequence[Sequence[Span]]) -> Embeddings:
    """The embeddings of `batch`, for any of its documents."""
    del spans
    parts = [batch(int(document.id[1:]), 1)[2] for document in documents]
    dense = np.concatenate([part.dense for part in parts if part.dense is not None])
    items = [part.multi[row] for part in parts if part.multi is not None for row in (0, 1)]
    return Embeddings(dense=dense, multi=MultiVectors.from_items(items))


def make(path: Path, projection: Projection | None = PROJECTION, *, pooling: Pooling | None = None) -> Store:
    """Three segments of 40 documents, not compacted."""
    store = Store.create(path, fingerprint=EXTERNAL, spec=SPEC, properties={}, projection=projection, pooling=pooling)
    with store.writer() as opened:
        for number in range(3):
            opened.write(*batch(40 * number, 40))
        opened.delete([f"d{number}" for number in range(0, 120, 10)])
    return store


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("whole") / "index").path


@pytest.fixture(scope="module")
def fitted(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = Path(shutil.copytree(whole, tmp_path_factory.mktemp("fitted") / "index"))
    with Store.open(path).writer() as opened:
        opened.compact(bits=8)
    return path


@pytest.fixture
def store(fitted: Path, tmp_path: Path) -> Store:
    """An index of its own, with a projection that was fitted."""
    return Store.open(Path(shutil.copytree(fitted, tmp_path / "index")))


def stored_vectors(store: Store) -> dict[str, list[NDArray[np.float32]]]:
    """The vectors of each passage, by document, as a search sees them."""
    vectors: dict[str, list[NDArray[np.float32]]] = {}
    with store.snapshot() as snapshot:
        for segment in snapshot.segments:
            ids = snapshot.fetch_ids(segment.docs.tolist()) if segment.live is None else None
            for row in range(segment.n_rows):
                if segment.live is not None and not segment.live[row]:
                    continue
                id = snapshot.fetch_ids([int(segment.docs[row])])[0] if ids is None else ids[row]
                if segment.multi is not None:
                    rows = np.asarray(segment.multi[row], np.float32)
                else:
                    assert segment.coded is not None
                    begin, end = (int(part[0]) for part in segment.coded.bounds(np.array([row])))
                    rows = segment.coded.codec.decode(segment.coded.rows)[begin:end]
                vectors.setdefault(id, []).append(rows)
    return vectors


def expected_vectors(
    numbers: Sequence[int], projection: projections.StoredProjection
) -> dict[str, list[NDArray[np.float32]]]:
    """The same in plain NumPy: float16 as it was stored, minus the mean, times the directions, of length 1."""
    mean, directions = projection.fitted.mean, projection.fitted.directions
    vectors = {}
    for number in numbers:
        rows = (tokens(8, seed=number).astype(np.float16).astype(np.float32) - mean) @ directions
        unit = np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)
        vectors[f"d{number}"] = [unit[:5], unit[5:]]
    return vectors


LIVE = [number for number in range(120) if number % 10]


def format_of(path: Path) -> int:
    with sqlite3.connect(path / "catalogue.sqlite") as connection:
        return int(connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()[0])


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    verification.forget()


def projection_file(path: Path) -> Path:
    (file,) = path.glob(f"attachments/*/{FILE}")
    return file


# -- fitting


def test_vectors_stay_whole_until_a_compaction(whole: Path) -> None:
    store = Store.open(whole)
    with store.snapshot() as snapshot:
        assert (snapshot.projection, snapshot.spec.multi) == (None, WIDTH)
    facts = info(store)
    assert (facts.wanted_projection, facts.projection, facts.format) == ("8 dimensions", None, 1)


def test_a_compaction_fits_the_projection_to_the_index(store: Store, whole: Path) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.spec.multi == DIMS
        assert snapshot.projection is not None
        sample = np.concatenate([tokens(8, seed=number) for number in LIVE]).astype(np.float16)
        expected = reference.projected(sample, sample, DIMS)
        rows = snapshot.projection.fitted.project(sample.astype(np.float32))
        np.testing.assert_allclose(rows @ rows.T, expected @ expected.T, atol=1e-3)  # signs of directions are open
        assert snapshot.projection.facts.energy.n_vectors == len(sample)
        vectors = expected_vectors(LIVE, snapshot.projection)
    assert check(store.path).problems == []
    stored = stored_vectors(store)
    assert sorted(stored) == sorted(vectors)
    for id, parts in vectors.items():
        np.testing.assert_allclose(np.concatenate(stored[id]), np.concatenate(parts), atol=0.02)
    assert format_of(store.path) == 2
    assert format_of(whole) == 1


def test_too_few_vectors_stay_whole(tmp_path: Path) -> None:
    store = make(tmp_path / "index", Projection(dims=DIMS, min_vectors=10_000))
    with store.writer() as opened:
        report = opened.compact()
        again = opened.compact()
    assert (report.dims, report.n_segments_after, again.n_segments_after) == (None, 1, 1)
    assert report.note == "864 vectors are too few to fit a projection to 8 dimensions, and stay whole; it takes 10,000"
    with store.snapshot() as snapshot:
        assert (snapshot.projection, snapshot.spec.multi) == (None, WIDTH)
        assert snapshot.segments[0].multi is not None  # not codes, so that a later fit sees the vectors themselves
    assert format_of(store.path) == 1
    assert check(store.path).problems == []


def test_a_fit_needs_sixteen_vectors_a_dimension_by_default(tmp_path: Path) -> None:
    store = make(tmp_path / "index", Projection(dims=DIMS))
    with store.writer() as opened:
        assert opened.compact().dims == DIMS  # 864 vectors; 16 * 32 are needed


def test_an_index_that_was_compacted_before_is_projected_from_its_codes(tmp_path: Path) -> None:
    store = make(tmp_path / "index", None)
    with store.writer() as opened:
        opened.compact(bits=8)
        report = opened.compact(projection=PROJECTION)
    assert (report.dims, "decoded to fit the projection" in report.note) == (DIMS, True)
    with store.snapshot() as snapshot:
        assert snapshot.projection is not None
        vectors = expected_vectors(LIVE, snapshot.projection)
    stored = stored_vectors(store)
    for id, parts in vectors.items():
        assert np.mean(np.concatenate(stored[id]) * np.concatenate(parts)) * DIMS > 0.98
    assert check(store.path).problems == []


def test_the_fit_is_kept_by_later_compactions_and_merges(store: Store) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.projection is not None
        before = snapshot.projection.facts
    with store.writer() as opened:
        for number in range(9):
            opened.write(*batch(200 + 5 * number, 5))
            opened.merge()
        opened.compact(bits=4)
    with store.snapshot() as snapshot:
        assert snapshot.projection is not None
        assert replace(snapshot.projection.facts, later=before.later) == before
        vectors = expected_vectors([*LIVE, *range(200, 245)], snapshot.projection)
    assert check(store.path).problems == []
    stored = stored_vectors(store)
    assert sorted(stored) == sorted(vectors)


def test_a_wish_that_changes_nothing_yet_is_remembered(tmp_path: Path) -> None:
    store = make(tmp_path / "index", None)
    with store.writer() as opened:
        opened.compact()
        wanted = Projection(dims=DIMS, min_vectors=5000)
        assert opened.compact(projection=wanted).dims is None
    assert Store.open(store.path).projection == wanted
    with store.writer() as opened:
        opened.compact(projection=False)
    assert Store.open(store.path).projection is None


# -- rankings


def ranking(store: Store, query: NDArray[np.float32], mode: str, k: int = 10) -> list[str]:
    with plait.open(store.path) as index:
        batch = Embeddings(multi=MultiVectors.from_items([query]))
        return [hit.id for hit in index.search_embeddings(batch, k, mode=mode)[0]]


def test_all_dimensions_without_centring_rank_as_whole_vectors(whole: Path, tmp_path: Path) -> None:
    paths = [Path(shutil.copytree(whole, tmp_path / name)) for name in ("whole", "turned")]
    rotation = Projection(dims=WIDTH, centred=False, min_vectors=100)
    with Store.open(paths[0]).writer() as opened:
        opened.compact(bits=8, projection=False)
    with Store.open(paths[1]).writer() as opened:
        assert opened.compact(bits=8, projection=rotation).dims == WIDTH
    scores = []
    for path in paths:
        with plait.open(path) as index:
            query = Embeddings(multi=MultiVectors.from_items([tokens(4, seed=1000)]))
            scores.append({hit.id: hit.score for hit in index.search_embeddings(query, 100, mode="multi")[0]})
    assert scores[0].keys() == scores[1].keys()
    np.testing.assert_allclose([scores[0][id] for id in scores[0]], [scores[1][id] for id in scores[0]], atol=4 * 0.01)


@pytest.mark.parametrize("mode", ["multi", "plaid", "xtr", "colxtr", "warp"])
def test_every_mode_projects_queries(store: Store, mode: str) -> None:
    """The query is a passage of the index: it must come first, as by MaxSim over projected floats."""
    for number in (17, 55, 101):
        assert ranking(store, tokens(8, seed=number)[:5], mode)[0] == f"d{number}"


def test_scores_are_those_of_projected_floats(store: Store) -> None:
    query = tokens(6, seed=999)
    with store.snapshot() as snapshot:
        assert snapshot.projection is not None
        vectors = expected_vectors(LIVE, snapshot.projection)
        passages = MultiVectors.from_items([part for parts in vectors.values() for part in parts])
        scores = maxsim(snapshot.projection.fitted.project(query), passages).reshape(-1, 2).max(axis=1)
    expected = [list(vectors)[item] for item in top_k(scores, 5).tolist()]
    with plait.open(store.path) as index:
        hits = index.search_embeddings(Embeddings(multi=MultiVectors.from_items([query])), 10, mode="multi")[0]
    assert len({hit.id for hit in hits[:5]} & set(expected)) >= 4
    assert hits[0].score == pytest.approx(float(scores.max()), abs=0.1)


def test_similar_uses_stored_vectors_as_they_are(store: Store) -> None:
    with plait.open(store.path) as index:
        hits = index.similar("d17", k=3, mode="multi")
        assert "d17" not in [hit.id for hit in hits]
        assert hits[0].score > hits[-1].score


def test_bounds_of_scores_are_measured_again_after_a_fit(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=SPEC) as index:
        documents, spans, embeddings = batch(0, 60)
        index.add_embeddings(documents, embeddings, spans=spans)
        bounds = []
        for projection in (None, PROJECTION):
            index.compact(projection=projection)
            calibration = index.info().calibration.usable
            assert calibration is not None
            bounds.append(calibration.bounds["multi"])
    assert bounds[0][0] > 0.6  # unrelated vectors share their mean
    assert bounds[1][0] < bounds[0][0] - 0.1


# -- widths


def test_embeddings_of_callers_have_the_width_of_the_model(store: Store) -> None:
    documents, spans, embeddings = batch(300, 2)
    with store.writer() as opened:
        opened.write(documents, spans, embeddings)
        assert embeddings.multi is not None
        narrow = replace(embeddings, multi=replace(embeddings.multi, values=embeddings.multi.values[:, :DIMS].copy()))
        with pytest.raises(InputError, match="have 8 dimensions, but the index stores 32"):
            opened.write(documents, spans, narrow)
    with store.snapshot() as snapshot:
        assert snapshot.projection is not None
        vectors = expected_vectors([300, 301], snapshot.projection)
    stored = stored_vectors(store)
    for id, parts in vectors.items():
        np.testing.assert_allclose(np.concatenate(stored[id]), np.concatenate(parts), atol=0.002)


@pytest.mark.parametrize("width", [DIMS, WIDTH - 1, WIDTH + 1])
def test_queries_of_another_width_are_refused(store: Store, width: int) -> None:
    query = Embeddings(multi=MultiVectors.from_items([np.ones((3, width), np.float32)]))
    with plait.open(store.path) as index, pytest.raises(InputError, match=f"have {width} dimensions, but the model"):
        index.search_embeddings(query, 5, mode="multi")


def test_a_projection_must_fit_the_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dims is 40, but the model gives multi vectors of 32"):
        Store.create(tmp_path / "a", fingerprint="x", spec=SPEC, properties={}, projection=Projection(dims=40))
    spec = EmbeddingSpec(dense=4)
    with pytest.raises(ConfigError, match="a projection is for multi vectors"):
        Store.create(tmp_path / "b", fingerprint="x", spec=spec, properties={}, projection=Projection(dims=8))


def test_opening_with_another_projection_is_refused(store: Store) -> None:
    plait.open(store.path, projection=PROJECTION).close()
    with pytest.raises(ConfigError, match="was made with a projection to 8 dimensions"):
        plait.open(store.path, projection=Projection(dims=16))
    with pytest.raises(ConfigError, match=r"must be a plait\.Projection"):
        plait.open(store.path, projection=128)  # type: ignore[arg-type]


# -- pooling


@pytest.mark.parametrize("pooling", [Pooling(fixed=2), Pooling(factor=2)])
def test_vectors_are_pooled_before_they_are_projected(tmp_path: Path, pooling: Pooling) -> None:
    """The order of documents that were added before the fit is also that of later ones."""
    store = make(tmp_path / "index", pooling=pooling)
    with store.writer() as opened:
        opened.compact(bits=8)
        opened.write(*batch(120, 10))
    assert check(store.path).problems == []
    multi = batch(125, 1)[2].multi
    assert multi is not None
    with store.snapshot() as snapshot:
        assert snapshot.projection is not None
        expected = snapshot.projection.fitted.project(pool(multi, pooling).values)
    np.testing.assert_allclose(np.concatenate(stored_vectors(store)["d125"]), expected, atol=0.002)


# -- drift


def test_info_compares_later_vectors_with_those_of_the_fit(store: Store) -> None:
    with store.writer() as opened:
        opened.write(*batch(400, 20))
    alike = info(store).projection
    assert alike is not None
    assert alike.later.n_vectors == 160
    assert alike.later.share == pytest.approx(alike.energy.share, abs=0.03)
    assert not is_outdated(alike)
    with store.writer() as opened:
        opened.write(*batch(500, 60, basis=77))
    other = info(store).projection
    assert other is not None
    assert other.later.n_vectors == 640
    assert other.later.share < other.energy.share - 0.1
    assert is_outdated(other)


# -- encoding again


def test_a_refit_needs_the_texts(store: Store) -> None:
    with store.writer() as opened:
        for change in (Projection(dims=16), False):
            with pytest.raises(ConfigError, match="the whole vectors are gone"):
                opened.compact(projection=change)
    assert check(store.path).problems == []


def test_a_refit_fits_again_and_resets_the_drift(store: Store) -> None:
    old = projection_file(store.path)
    with store.writer() as opened:
        opened.write(*batch(600, 5))
        report = opened.compact(bits=8, encode=encode_again)
    assert (report.dims, report.n_documents, report.n_segments_before) == (DIMS, 113, 2)
    assert not old.exists()
    facts = info(store).projection
    assert facts is not None
    assert (facts.later.n_vectors, facts.energy.n_vectors, facts.n_vectors) == (0, 8 * 113, 8 * 113)
    with store.snapshot() as snapshot:
        assert snapshot.projection is not None
        vectors = expected_vectors([*LIVE, *range(600, 605)], snapshot.projection)
    stored = stored_vectors(store)
    for id, parts in vectors.items():
        np.testing.assert_allclose(np.concatenate(stored[id]), np.concatenate(parts), atol=0.02)
    assert check(store.path).notes == []
    assert check(store.path).problems == []


def test_a_refit_keeps_the_kind_of_codes(store: Store) -> None:
    with store.writer() as opened:
        opened.compact(bits=4, encode=encode_again, keep_8bit=True)
        report = opened.compact(encode=encode_again)
    assert (report.bits, report.dims) == (4, DIMS)
    with store.snapshot() as snapshot:
        assert snapshot.segments[0].coded is not None
        assert snapshot.segments[0].coded.codes_8bit is not None


def test_a_refit_changes_the_dimensions_or_makes_vectors_whole(store: Store) -> None:
    with store.writer() as opened:
        assert opened.compact(projection=Projection(dims=16, min_vectors=300), encode=encode_again).dims == 16
    with store.snapshot() as snapshot:
        assert snapshot.spec.multi == 16
    with store.writer() as opened:
        assert opened.compact(projection=False, encode=encode_again).dims is None
    with store.snapshot() as snapshot:
        assert (snapshot.projection, snapshot.spec.multi) == (None, WIDTH)
    assert format_of(store.path) == 1
    assert list(store.path.glob("attachments/*")) == []
    report = check(store.path)
    assert (report.problems, report.notes) == ([], [])


def test_a_refit_that_fails_leaves_the_index_as_it_was(store: Store) -> None:
    before = sorted(path.relative_to(store.path) for path in store.path.rglob("*.plait"))

    def fail(documents: Sequence[Document], spans: Sequence[Sequence[Span]]) -> Embeddings:
        if any(document.id == "d119" for document in documents):
            raise KeyboardInterrupt
        return encode_again(documents, spans)

    with pytest.MonkeyPatch.context() as patch, store.writer() as opened:
        patch.setattr(writer, "ENCODED_AT_ONCE", 30)
        with pytest.raises(KeyboardInterrupt):
            opened.compact(encode=fail)
    assert sorted(path.relative_to(store.path) for path in store.path.rglob("*.plait")) == before
    assert check(store.path).problems == []


def test_a_fit_that_fails_leaves_the_index_as_it_was(whole: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(whole, tmp_path / "index"))
    before = sorted(file.relative_to(path) for file in path.rglob("*.plait"))
    for name in ("write_projection", "write_projection_file"):
        with pytest.MonkeyPatch.context() as patch, Store.open(path).writer() as opened:
            patch.setattr(writer, name, lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
            with pytest.raises(StoreError):
                opened.compact()
        assert sorted(file.relative_to(path) for file in path.rglob("*.plait")) == before, name
        assert format_of(path) == 1
        assert check(path).problems == []


# -- damage


def test_a_backup_has_the_projection(store: Store, tmp_path: Path) -> None:
    backup(store.path, tmp_path / "copy")
    query = tokens(4, seed=3)
    assert ranking(Store.open(tmp_path / "copy"), query, "multi") == ranking(store, query, "multi")


def test_a_repair_refuses_to_drop_the_projection(store: Store) -> None:
    damage(projection_file(store.path))
    assert check(store.path).damaged_attachments == [ATTACHMENT]
    with pytest.raises(CorruptIndexError, match="nothing was repaired"):
        repair(store.path)
    assert projection_file(store.path).exists()
    with store.writer() as opened:  # but the texts can be encoded again
        opened.compact(encode=encode_again)
    assert check(store.path).problems == []


def test_a_damaged_projection_stops_searches_that_need_it_alone(store: Store) -> None:
    damage(projection_file(store.path))
    with plait.open(store.path) as index:
        query = Embeddings(multi=MultiVectors.from_items([tokens(4, seed=3)]))
        with pytest.raises(CorruptIndexError, match=r"projection\.plait"):
            index.search_embeddings(query, 5, mode="multi")
        assert index.search("word3", mode="bm25")
        with pytest.raises(CorruptIndexError, match=r"projection\.plait"):
            index.add_embeddings(*batch(700, 1)[::2], spans=batch(700, 1)[1])


def test_a_missing_projection_is_reported(store: Store) -> None:
    projection_file(store.path).unlink()
    verification.forget()
    assert any("projection" in problem for problem in check(store.path).problems)
    with plait.open(store.path) as index:
        query = Embeddings(multi=MultiVectors.from_items([tokens(4, seed=3)]))
        with pytest.raises(CorruptIndexError, match="plait compact --refit"):
            index.search_embeddings(query, 5, mode="multi")


def set_meta(path: Path, key: str, value: object) -> None:
    with sqlite3.connect(path / "catalogue.sqlite") as connection:
        if value is None:
            connection.execute("DELETE FROM meta WHERE key = ?", [key])
        else:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key, value])


GOOD = {
    "number": 5,
    "width": WIDTH,
    "dims": DIMS,
    "n_vectors": 9,
    "energy": {"n_vectors": 1, "before": 1.0, "after": 1.0},
}


@pytest.mark.parametrize(
    "change",
    [
        {"dims": WIDTH + 1},
        {"dims": 0},
        {"dims": 8.0},
        {"number": -1},
        {"n_vectors": -1},
        {"width": WIDTH + 1},
        {"width": "32"},
        {"energy": {"n_vectors": 1, "before": -1.0, "after": 0.0}},
        {"energy": {"n_vectors": 1, "before": float("nan"), "after": 0.0}},
        {"energy": None},
    ],
)
def test_damaged_facts_are_an_error_and_no_crash(store: Store, change: dict[str, object]) -> None:
    set_meta(store.path, "projection", json.dumps({**GOOD, **change}))
    with pytest.raises(CorruptIndexError):
        store.snapshot()
    assert check(store.path).problems


@pytest.mark.parametrize("value", [None, "[]", "{}", 7, "not json"])
def test_facts_that_are_gone_or_no_facts_are_noticed(store: Store, value: object) -> None:
    set_meta(store.path, "projection", value)
    with pytest.raises(CorruptIndexError):
        store.snapshot().segments[0].coded  # noqa: B018 -- reading it checks it
    assert check(store.path).problems


def test_vectors_of_another_projection_are_noticed(store: Store) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.projection is not None
        number = snapshot.projection.number
    facts = json.dumps({**GOOD, "number": number + 1})
    set_meta(store.path, "projection", facts)
    assert any("but the catalogue says" in problem for problem in check(store.path).problems)


def test_an_older_plait_refuses_the_format(store: Store, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "FORMAT", schema.FIRST_FORMAT)
    with pytest.raises(NewerFormatError, match="has format 2, but this plait"):
        Store.open(store.path)
    Store.open(whole).close()


def test_the_attachment_belongs_to_the_index(store: Store) -> None:
    with store.writer() as opened:
        with pytest.raises(StoreError, match="choose another name"):
            opened.detach(ATTACHMENT)
        with pytest.raises(StoreError, match="choose another name"):
            opened.attach(ATTACHMENT, lambda _: {})


def test_a_reader_keeps_its_projection_while_another_is_fitted(store: Store) -> None:
    query = tokens(4, seed=3)
    with plait.open(store.path) as reader:
        given = Embeddings(multi=MultiVectors.from_items([query]))
        snapshot = reader.snapshot
        with Store.open(store.path).writer() as opened:
            opened.compact(projection=Projection(dims=16, min_vectors=300), encode=encode_again)
        assert snapshot.spec.multi == DIMS
        projected = snapshot.projected(given).multi
        assert projected is not None
        assert projected.dim == DIMS
        assert reader.search_embeddings(given, 5, mode="multi")[0]
        reader.refresh()
        assert reader.search_embeddings(given, 5, mode="multi")[0]
        assert reader.snapshot.spec.multi == 16


# -- with an encoder


TEXTS = [
    f"the {colour} {animal} weaves {stuff} cloth near the {colour} river"
    for colour in ("red", "blue", "green", "old", "new")
    for animal in ("man", "moth", "loom", "sheep", "dog")
    for stuff in ("wool", "silk", "linen")
]


def test_an_index_with_an_encoder_end_to_end(tmp_path: Path) -> None:
    encoder = WordEncoder(dim=WIDTH)
    projection = Projection(dims=16, min_vectors=200)
    documents = [{"id": f"t{number}", "text": text} for number, text in enumerate(TEXTS)]
    with plait.open(tmp_path / "index", create=True, encoder=encoder, projection=projection) as index:
        index.add(documents[:60])
        report = index.compact()
        assert (report.dims, report.energy is not None and report.energy > 0.5) == (16, True)
        index.add(documents[60:])
        for mode in ("hybrid", "multi"):
            hits = index.search("blue sheep weaves silk cloth", k=3, mode=mode)
            assert hits[0].text == "the blue sheep weaves silk cloth near the blue river"
        matches = index.explain("blue sheep", hits[0], mode="multi").multi
        assert matches is not None
        assert [(match.query, match.token) for match in matches.matches] == [("blue", "blue"), ("sheep", "sheep")]
        calibration = index.info().calibration.usable
        assert calibration is not None
        encoder.n_encoded = 0
        report = index.compact(refit=True, projection=Projection(dims=8, min_vectors=200))
        assert (report.dims, encoder.n_encoded >= len(TEXTS)) == (8, True)
        assert index.search("green dog wool", k=1, mode="multi")[0].text.startswith("the green dog weaves wool")
        with pytest.raises(ConfigError, match="refit is"):
            index.compact(refit="yes")  # type: ignore[arg-type]
    assert check(tmp_path / "index").problems == []


def test_parts_of_a_collection_share_one_projection(tmp_path: Path) -> None:
    documents, spans, embeddings = batch(0, 60)
    with plait.open(tmp_path / "first", create=True, spec=SPEC, projection=PROJECTION) as first:
        assert first.info().projection is None
        first.add_embeddings(documents, embeddings, spans=spans)
        first.compact(bits=8)
        shared = first.projection
        assert shared is not None
        query = Embeddings(multi=MultiVectors.from_items([tokens(4, seed=5)]))
        with plait.Index.create(tmp_path / "second", spec=SPEC, projection=shared) as second:
            assert second.projection is not None
            np.testing.assert_array_equal(second.projection.directions, shared.directions)
            second.add_embeddings(documents, embeddings, spans=spans)
            second.compact(bits=8)
            hits = [index.search_embeddings(query, 5, mode="multi")[0] for index in (first, second)]
            assert [hit.id for hit in hits[0]] == [hit.id for hit in hits[1]]
            np.testing.assert_allclose([hit.score for hit in hits[0]], [hit.score for hit in hits[1]], atol=1e-3)
    assert check(tmp_path / "second").problems == []
    assert format_of(tmp_path / "second") == 2


def test_a_projection_of_another_width_or_for_an_index_with_documents_is_refused(store: Store, tmp_path: Path) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.projection is not None
        fitted = snapshot.projection.fitted
    with pytest.raises(ConfigError, match="takes vectors of 32 dimensions, and the model gives 16"):
        plait.Index.create(tmp_path / "other", spec=EmbeddingSpec(multi=16), projection=fitted)
    with store.writer() as opened, pytest.raises(ConfigError, match="has documents already"):
        opened.adopt_projection(fitted)


def test_vectors_of_a_caller_cannot_be_encoded_again(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=SPEC, projection=PROJECTION) as index:
        documents, spans, embeddings = batch(0, 50)
        index.add_embeddings(documents, embeddings, spans=spans)
        assert index.compact().dims == DIMS
        with pytest.raises(ConfigError, match="made by the caller"):
            index.compact(refit=True)
