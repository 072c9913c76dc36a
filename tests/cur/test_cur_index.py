"""The CUR index of an index: build, resume, update, search with filters and deletes, and errors."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import plait
import plait.searcher
from encoders import WordEncoder
from plait.cli.app import app
from plait.cur.anchor_queries import dev_split, queries_from_corpus, queries_from_file
from plait.cur.build import CurConfig, build_cur, update_cur
from plait.cur.draft import draft_folder
from plait.cur.index import inner_products, open_cur, quantize, require_cur
from plait.errors import (
    ConfigError,
    CorruptIndexError,
    InputError,
    LockedError,
    NotAnIndexError,
    PlaitError,
    StoreError,
)
from plait.evaluate import rank_queries
from plait.index import Index
from plait.rerank.cross_encoder import OnBatch
from plait.rerank.pairs import Pair
from plait.search.hits import load_texts
from plait.search.modes import parse_params
from plait.search.params import Params
from plait.search.trace import Trace
from plait.storage.backup import backup
from plait.storage.check import check
from plait.storage.repair import repair
from rerank.small_cross import WordScorer

VOCABULARY = [f"{first}{second}{'o' * (number % 4)}" for number, first in enumerate("bcdfg") for second in "aeiu"]


def words(n: int, seed: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(VOCABULARY, n).tolist())


QUERIES = [words(4, 1000 + number) for number in range(40)]
# There are 20 words, so the score matrix has rank 20: 30 anchors span it.
SMALL = CurConfig(budget=60, k=5, n_anchors=30, seed=1)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    opened = plait.open(tmp_path / "ix", create=True, encoder=WordEncoder())
    opened.add([{"id": f"d{n}", "text": words(12, n), "title": f"title {n}", "even": n % 2 == 0} for n in range(150)])
    return opened


@pytest.fixture
def built(index: Index) -> Index:
    build_cur(index._store, WordScorer(), QUERIES, SMALL)
    return index


def recall(index: Index, query: str, hit_ids: list[str], k: int) -> float:
    """The share of the first k hits that score at least as well as the k-th best document: there are many ties."""
    ids = [id for id, _ in rank_queries(index, [query], 500, mode="dense")[0]]
    scores = WordScorer().score([(query, text) for text in load_texts(index.snapshot, ids)])
    threshold = np.sort(scores)[-k] - 1e-6
    good = {id for id, score in zip(ids, scores, strict=True) if score >= threshold}
    return len(good & set(hit_ids[:k])) / k


def params_of(mode: str, **given: object) -> Params:
    params: Params = parse_params(mode, {"model": WordScorer(), "budget": 60, **given})
    return params


def search_ids(index: Index, query: str, k: int, mode: str, **options: object) -> list[str]:
    return [hit.id for hit in index.search(query, k, mode=mode, params=params_of(mode, **options))]


@pytest.mark.parametrize("mode", ["anncur", "adacur", "axn"])
def test_each_mode_retrieves_most_of_the_best_documents(built: Index, mode: str) -> None:
    queries = [words(4, seed) for seed in range(2000, 2010)]
    recalls = [recall(built, query, search_ids(built, query, 5, mode), 5) for query in queries]
    assert np.mean(recalls) >= (0.7 if mode == "axn" else 0.9)  # dense vectors have 16 dimensions, too few for 20 words


@pytest.mark.parametrize("mode", ["anncur", "adacur", "axn"])
def test_the_trace_counts_exactly_the_budget(built: Index, mode: str) -> None:
    scorer, trace = WordScorer(), Trace()
    built.search(QUERIES[0], 5, mode=mode, params=params_of(mode, model=scorer, budget=50), trace=trace)
    assert scorer.n_pairs == 50
    calls = [stage.counts["calls"] for stage in trace.stages if "calls" in stage.counts]
    assert sum(calls) == 50
    assert len(calls) == (2 if mode == "anncur" else 5)


def test_hits_have_exact_scores_and_the_round_that_scored_them(built: Index) -> None:
    hits = built.search(QUERIES[1], 5, mode="anncur", params=params_of("anncur"), explain=True)
    expected = WordScorer().score([(QUERIES[1], text) for text in load_texts(built.snapshot, [hit.id for hit in hits])])
    np.testing.assert_allclose([hit.score for hit in hits], expected, rtol=1e-5)
    assert {hit.scores["round"] for hit in hits} <= {1.0, 2.0}
    assert hits[0].scores["predicted"] == pytest.approx(hits[0].score, abs=1.0)
    assert hits[0].explanation is not None
    parts = {part.kind: part for part in hits[0].explanation.parts}
    assert (parts["anncur"].rank, parts["anncur"].share) == (1, 1.0)
    assert parts["predicted"].share == 0
    assert parts["round"].rank == 1  # the best hit is the best of its round


def test_filters_and_deletes_apply_to_anchors(built: Index) -> None:
    anchors = built.snapshot.fetch_ids(list(require_cur(built.path).manifest.anchor_docs))
    for mode in ("anncur", "adacur", "axn"):
        hits = built.search(QUERIES[2], 50, mode=mode, filter="even", params=params_of(mode))
        assert len(hits) > 5
        assert all(hit.metadata["even"] for hit in hits)
    built.delete(anchors[:10])
    for mode in ("anncur", "adacur", "axn"):
        assert not set(search_ids(built, QUERIES[2], 50, mode)) & set(anchors[:10])
    assert built.search("ba", 3, mode="anncur", filter="even > 5", params=params_of("anncur", budget=200)) == []


def test_later_documents_are_retrieved_after_an_update(built: Index) -> None:
    built.add([{"id": "late", "text": f"{QUERIES[3]} {QUERIES[3]} {QUERIES[3]}"}])
    assert "late" not in search_ids(built, QUERIES[3], 5, "anncur")
    assert "late" in search_ids(built, QUERIES[3], 5, "axn")
    scorer = WordScorer()
    manifest = update_cur(built._store, scorer)
    assert scorer.n_pairs == len(QUERIES)
    assert manifest.n_documents == 151
    for mode in ("anncur", "adacur"):
        assert "late" in search_ids(built, QUERIES[3], 5, mode)


class InterruptedScorer(WordScorer):
    """Raises KeyboardInterrupt after n blocks."""

    def __init__(self, n_blocks: int) -> None:
        super().__init__()
        self._n_left = n_blocks

    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        if self._n_left == 0:
            raise KeyboardInterrupt
        self._n_left -= 1
        return super().score(pairs, on_batch=on_batch)


def test_a_killed_build_resumes(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.cur.build.BLOCK_PAIRS", 10 * len(QUERIES))
    with pytest.raises(KeyboardInterrupt):
        build_cur(index._store, InterruptedScorer(4), QUERIES, SMALL)
    (draft,) = draft_folder(index.path).glob("draft-*")
    with draft.open("ab") as file:
        file.write(b"half a row")
    with pytest.raises(NotAnIndexError, match="40 documents are scored already"):
        require_cur(index.path)
    scorer, progress = WordScorer(), list[tuple[int, int]]()
    build_cur(index._store, scorer, QUERIES, SMALL, on_pairs=lambda done, total: progress.append((done, total)))
    assert scorer.n_pairs == 110 * len(QUERIES)
    assert progress[-1] == (scorer.n_pairs, scorer.n_pairs)
    stored = require_cur(index.path)
    texts = load_texts(index.snapshot, index.snapshot.fetch_ids(stored.docs.tolist()))
    np.testing.assert_allclose(stored.scores[:, 7], WordScorer().score([(QUERIES[7], text) for text in texts]))


def test_a_second_build_scores_nothing_and_other_queries_start_again(built: Index) -> None:
    scorer = WordScorer()
    build_cur(built._store, scorer, QUERIES, CurConfig(budget=50, k=3, anchor_method="leverage"))
    assert scorer.n_pairs == 0
    build_cur(built._store, scorer, QUERIES[:20], SMALL)
    assert scorer.n_pairs == 150 * 20


def test_anchors_can_be_clusters_of_dense_vectors(index: Index) -> None:
    facts = build_cur(
        index._store, WordScorer(), QUERIES, CurConfig(budget=60, k=5, n_anchors=20, anchor_method="clusters")
    )
    assert len(set(facts.anchor_docs)) == 20


class ChangingScorer(WordScorer):
    """Adds a document to the index while it scores."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._done = path, False

    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        if not self._done:
            with plait.open(self._path, encoder=WordEncoder()) as other:
                other.add([{"id": "meanwhile", "text": "ba be bi"}])
            self._done = True
        return super().score(pairs, on_batch=on_batch)


def test_a_change_during_the_build_is_an_error_and_scores_are_stored(index: Index) -> None:
    with pytest.raises(StoreError, match=r"changed while its documents were scored.*run the same command again"):
        build_cur(index._store, ChangingScorer(index.path), QUERIES, SMALL)
    scorer = WordScorer()
    assert build_cur(index._store, scorer, QUERIES, SMALL).n_documents == 151
    assert scorer.n_pairs == len(QUERIES)


class NanScorer(WordScorer):
    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        scores = super().score(pairs, on_batch=on_batch)
        scores[3] = np.nan
        return scores


def test_the_error_of_a_nan_score_names_document_and_query(index: Index) -> None:
    with pytest.raises(InputError, match=r"document 'd0' with the query .* as nan.*fp32"):
        build_cur(index._store, NanScorer(), QUERIES, SMALL)


def test_two_builds_at_once_are_refused(index: Index) -> None:
    class BuildingScorer(WordScorer):
        def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
            build_cur(index._store, WordScorer(), QUERIES, SMALL)
            return super().score(pairs, on_batch=on_batch)

    with pytest.raises(LockedError):
        build_cur(index._store, BuildingScorer(), QUERIES, SMALL)


def test_impossible_searches_are_refused(built: Index) -> None:
    other = WordScorer()
    other.fingerprint = "other"
    cases: list[tuple[str, dict[str, object], str]] = [
        ("anncur", {"budget": 3}, r"30 anchors first"),
        ("anncur", {"start": "dense"}, "no parameter 'start'"),
        ("anncur", {"n_rounds": 3}, "no parameter 'n_rounds'"),
        ("adacur", {"mix": 0.5}, "no parameter 'mix'"),
        ("adacur", {"start": "sparse"}, "start is 'sparse'"),
        ("adacur", {"budget": 0}, "at least 1"),
        ("adacur", {"model": other}, "cannot be compared"),
    ]
    for mode, options, message in cases:
        with pytest.raises(ConfigError, match=message):
            search_ids(built, "ba", 3, mode, **options)
    with pytest.raises(ConfigError, match="exact search has no parameters and is for"):
        built.search("ba", mode="anncur", exact=True)
    with pytest.raises(ConfigError, match="cannot be compared"):
        update_cur(built._store, other)


def test_the_error_of_a_missing_cur_index_says_how_to_build_it(index: Index) -> None:
    with pytest.raises(NotAnIndexError, match="plait cur build"):
        index.search("ba", mode="anncur")


def cur_file(index: Index) -> Path:
    (file,) = index.path.glob("attachments/*/cur.plait")
    return file


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def test_a_damaged_byte_is_an_error_wherever_it_is(built: Index) -> None:
    file = cur_file(built)
    whole = file.read_bytes()
    for at in [0, 20, 60, *range(200, len(whole), len(whole) // 40), len(whole) - 1]:
        flip(file, at)
        with plait.open(built.path, encoder=WordEncoder()) as index, pytest.raises(PlaitError, match=r"cur\.plait"):
            search_ids(index, "ba", 3, "anncur")
        assert check(built.path).damaged_attachments == ["cur"]
        file.write_bytes(whole)
    file.unlink()
    with plait.open(built.path, encoder=WordEncoder()) as index, pytest.raises(CorruptIndexError, match="is missing"):
        search_ids(index, "ba", 3, "anncur")


def test_repair_removes_a_damaged_cur_index_alone_and_a_build_replaces_it(built: Index) -> None:
    flip(cur_file(built), -200)
    done = repair(built.path)
    assert (done.removed_attachments, done.removed_ids, done.n_kept) == (["cur"], [], 150)
    assert not list(built.path.glob("attachments/*"))
    assert open_cur(built.path) is None
    build_cur(built._store, WordScorer(), QUERIES, SMALL)
    flip(cur_file(built), -200)
    scorer = WordScorer()
    build_cur(built._store, scorer, QUERIES, SMALL)  # damaged scores are not used again
    assert scorer.n_pairs == 150 * len(QUERIES)
    assert check(built.path).ok


def test_an_update_and_a_build_do_not_copy_damaged_scores(built: Index) -> None:
    built.add([{"id": "late", "text": "ba be"}])
    search_ids(built, "ba", 3, "anncur")  # compares the file with its checksums, once in a process
    file = cur_file(built)
    state = file.stat()
    flip(file, -5000)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(CorruptIndexError, match="do not match their checksum"):
        update_cur(built._store, WordScorer())
    scorer = WordScorer()
    build_cur(built._store, scorer, QUERIES, SMALL)
    assert scorer.n_pairs == 151 * len(QUERIES)


def test_a_backup_has_the_cur_index(built: Index, tmp_path: Path) -> None:
    report = backup(built.path, tmp_path / "copy")
    assert report.n_bytes > cur_file(built).stat().st_size
    assert check(tmp_path / "copy").ok
    with plait.open(tmp_path / "copy", encoder=WordEncoder()) as copy:
        assert search_ids(copy, QUERIES[0], 5, "anncur") == search_ids(built, QUERIES[0], 5, "anncur")
    flip(cur_file(built), -200)
    with pytest.raises(CorruptIndexError, match=r"not backed up.*cur\.plait"):
        backup(built.path, tmp_path / "other")


def test_info_has_the_size_of_the_cur_index(built: Index) -> None:
    assert built.info().bytes_by_part["cur"] == cur_file(built).stat().st_size


def test_a_damaged_draft_is_scored_again_from_the_damage_on(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.cur.build.BLOCK_PAIRS", 10 * len(QUERIES))
    with pytest.raises(KeyboardInterrupt):
        build_cur(index._store, InterruptedScorer(4), QUERIES, SMALL)
    (draft,) = draft_folder(index.path).glob("draft-*")
    flip(draft, draft.stat().st_size - 10 * (8 + 4 * len(QUERIES)) - 20)  # in the third of four blocks
    scorer = WordScorer()
    build_cur(index._store, scorer, QUERIES, SMALL)
    assert scorer.n_pairs == 130 * len(QUERIES)
    assert list(draft_folder(index.path).glob("draft-*")) == []


def test_a_draft_with_a_damaged_header_is_started_again(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.cur.build.BLOCK_PAIRS", 10 * len(QUERIES))
    for at in (0, 9, 13, 40):
        with pytest.raises(KeyboardInterrupt):
            build_cur(index._store, InterruptedScorer(1), QUERIES, SMALL)
        (draft,) = draft_folder(index.path).glob("draft-*")
        flip(draft, at)
    scorer = WordScorer()
    build_cur(index._store, scorer, QUERIES, SMALL)
    assert scorer.n_pairs == 150 * len(QUERIES)


def test_the_older_cur_index_answers_until_another_is_whole(built: Index) -> None:
    expected = search_ids(built, QUERIES[0], 5, "anncur")
    with pytest.raises(KeyboardInterrupt):
        build_cur(built._store, InterruptedScorer(0), QUERIES[:20], SMALL)
    assert search_ids(built, QUERIES[0], 5, "anncur") == expected
    number = require_cur(built.path).number
    build_cur(built._store, WordScorer(), QUERIES[:20], SMALL)
    assert require_cur(built.path).number > number
    assert len(list(built.path.glob("attachments/*"))) == 1


def test_scores_of_deleted_documents_are_dropped_but_not_those_of_anchors(built: Index) -> None:
    anchors = built.snapshot.fetch_ids(list(require_cur(built.path).manifest.anchor_docs))
    others = [f"d{number}" for number in range(150) if f"d{number}" not in anchors]
    built.delete([anchors[0], *others[:5]])
    assert update_cur(built._store, WordScorer()).n_documents == 145
    assert anchors[0] not in search_ids(built, QUERIES[2], 50, "anncur")
    assert build_cur(built._store, WordScorer(), QUERIES, SMALL).n_documents == 144


def test_quantized_rows_have_nearly_the_same_inner_products() -> None:
    rng = np.random.default_rng(0)
    rows, query = rng.normal(size=(50, 30)).astype(np.float32), rng.normal(size=30)
    rows[7] = 0
    products = inner_products(query, *quantize(rows), block=16)
    np.testing.assert_allclose(products, rows @ query, atol=0.15)
    assert products[7] == 0


# -- anchor queries


def test_queries_are_read_from_plain_lines_and_json(tmp_path: Path) -> None:
    file = tmp_path / "q.txt"
    file.write_text('one query\n\n{"_id": "1", "text": "two"}\n{"query": "three"}\n')
    assert queries_from_file(file, minimum=2) == ["one query", "two", "three"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one\ntwo\n", "has 2 queries, and 5"),
        ("a\nb\nc\nd\na\n", "more than once"),
        ('{"id": 3}\n', "line 1: expected 'text'"),
    ],
)
def test_unusable_query_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "q.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        queries_from_file(tmp_path / "q.txt", minimum=5)


def test_queries_are_made_from_the_corpus(index: Index) -> None:
    snapshot = index.snapshot
    titles = queries_from_corpus(snapshot, "titles", 20)
    assert len(set(titles)) == 20
    assert all(title.startswith("title ") for title in titles)
    assert all(len(text.split()) >= 4 for text in queries_from_corpus(snapshot, "sentences", 20))
    with pytest.raises(InputError, match=r"have 150 different titles.*sentences"):
        queries_from_corpus(snapshot, "titles", 151)


def test_dev_queries_are_not_matrix_rows() -> None:
    rows, dev = dev_split(QUERIES)
    assert sorted(rows + dev) == list(range(40))
    assert len(dev) == 8


# -- the command line


def test_the_command_builds_updates_and_searches(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index.close()
    monkeypatch.setattr("plait.rerank.cross_encoder.load_cross", lambda *_given, **_options: WordScorer())
    monkeypatch.setattr("plait.cur.modes.shared_cross", lambda *_given, **_options: WordScorer())
    (tmp_path / "q.txt").write_text("\n".join(QUERIES))
    path, run = str(tmp_path / "ix"), CliRunner()
    built = run.invoke(app, ["cur", "build", path, "--queries", str(tmp_path / "q.txt"), "--budget", "60", "--json"])
    assert built.exit_code == 0, built.stderr
    assert json.loads(built.stdout)["documents"] == 150
    for action in ("update", "info"):
        assert "150 documents over" in run.invoke(app, ["cur", action, path]).stdout
    wrong = run.invoke(app, ["cur", "build", path])
    assert wrong.exit_code == 2
    assert "--queries FILE, or --from-corpus" in wrong.stderr
    assert "--budget is for the modes" in run.invoke(app, ["search", path, "ba", "--budget", "9"]).stderr
