"""MTEB: plait's search and its encoders in MTEB's own evaluator, on data that the tests write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from datasets import Dataset as Table
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.models.models_protocols import CrossEncoderProtocol, EncoderProtocol, SearchProtocol
from mteb.types import PromptType

import plait
from encoders import WordEncoder
from integrations.judged import write_beir
from integrations.samples import OverlapScorer
from plait.errors import ConfigError, InputError, ModelError
from plait.evaluate import load_beir, measure, rank_dataset
from plait.integrations.mteb import BeirFolderTask, PlaitCrossEncoder, PlaitEncoder, PlaitSearch
from plait.integrations.mteb.__main__ import main

TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("beir") / "topics")


def encoder() -> WordEncoder:
    return WordEncoder(terms=5000)


def scores_of(model: Any, task: Any) -> dict[str, float]:
    results = mteb.evaluate(model, [task], cache=None, co2_tracker=False, show_progress_bar=False)
    (result,) = results.task_results
    (scores,) = result.scores["test"]
    return dict(scores)


def measured(folder: Path, mode: str, path: Path, *, drop_self: bool = False) -> dict[str, float]:
    """What plait itself measures, with an index of its own."""
    judged = load_beir(folder)
    with plait.open(path, create=True, encoder=encoder()) as index:
        index.add(judged.documents())
        run = rank_dataset(index, judged, mode, 1000, drop_self=drop_self).run
    return measure(run, judged.qrels, ["nDCG@10", "R@100", "AP@100"])


def test_the_models_have_the_protocols_of_mteb() -> None:
    assert isinstance(PlaitSearch(encoder=encoder()), SearchProtocol)
    assert isinstance(PlaitEncoder(encoder()), EncoderProtocol)
    assert isinstance(PlaitCrossEncoder(OverlapScorer()), CrossEncoderProtocol)


@pytest.mark.parametrize("mode", ["hybrid", "dense", "sparse", "multi", "bm25"])
def test_mteb_and_plait_measure_the_same(folder: Path, tmp_path: Path, mode: str) -> None:
    scores = scores_of(PlaitSearch(encoder=encoder(), mode=mode), BeirFolderTask(folder))
    ours = measured(folder, mode, tmp_path / "index")
    assert 0.1 < ours["nDCG@10"] < 0.999
    assert abs(scores["exact_ndcg_at_10"] - ours["nDCG@10"]) < TOLERANCE
    assert abs(scores["exact_recall_at_100"] - ours["R@100"]) < TOLERANCE
    assert abs(scores["exact_map_at_100"] - ours["AP@100"]) < TOLERANCE
    assert scores["ndcg_at_10"] == pytest.approx(ours["nDCG@10"], abs=6e-6)  # MTEB rounds to five digits


@pytest.mark.parametrize("kind", ["dense", "sparse", "multi"])
def test_encoders_of_every_kind_score_as_the_index_does(folder: Path, tmp_path: Path, kind: Any) -> None:
    """Ranks may differ: the words of these texts give many equal scores, and an index stores rounded weights."""
    model, task = PlaitEncoder(encoder(), kind=kind), BeirFolderTask(folder)
    assert scores_of(model, task)["exact_ndcg_at_10"] > 0.3
    judged = load_beir(folder)
    documents = [document for document in judged.documents() if not document.title]
    texts = list(judged.queries.values())
    queries = model.encode([{"text": texts}], task_metadata=task.metadata, prompt_type=PromptType.query)
    passages = model.encode([{"text": [one.text for one in documents]}], task_metadata=task.metadata)
    scores = np.asarray(model.similarity(queries, passages))
    with plait.open(tmp_path / "index", create=True, encoder=encoder()) as index:
        index.add(documents)
        for row, hits in zip(scores, index.search_many(texts, len(documents), mode=kind, exact=True), strict=True):
            result = {hit.id: hit.score for hit in hits}
            ours = [result.get(one.id, 0.0) for one in documents]
            np.testing.assert_allclose(row, ours, atol=0.02, rtol=0.005)


class RerankingTask(BeirFolderTask):
    """Every query has a few documents to rank."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.metadata = self.metadata.model_copy(update={"type": "Reranking"})

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        super().load_data(num_proc, **options)
        split: RetrievalSplitData = self.dataset["default"]["test"]
        split["top_ranked"] = {id: list(judged) for id, judged in self.judged.qrels.items()}


@pytest.mark.parametrize("make", [
    lambda: PlaitSearch(encoder=encoder()),
    lambda: PlaitEncoder(encoder(), kind="dense"),
    lambda: PlaitEncoder(encoder(), kind="sparse"),
    lambda: PlaitEncoder(encoder(), kind="multi"),
    lambda: PlaitCrossEncoder(OverlapScorer()),
], ids=["search", "dense", "sparse", "multi", "cross"])  # fmt: skip
def test_given_documents_are_reranked(folder: Path, make: Any) -> None:
    task = RerankingTask(folder)
    scores = scores_of(make(), task)
    assert scores["exact_ndcg_at_10"] > 0.6
    assert scores["exact_recall_at_100"] == 1  # nothing else was ranked


def test_queries_that_are_documents_are_dropped(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "self")
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    corpus.write_text(corpus.read_text() + queries.read_text())
    scores = scores_of(PlaitSearch(encoder=encoder()), BeirFolderTask(folder, drop_self=True))
    ours = measured(folder, "hybrid", tmp_path / "index", drop_self=True)
    assert abs(scores["exact_ndcg_at_10"] - ours["nDCG@10"]) < TOLERANCE


def test_an_index_is_kept_and_not_encoded_again(folder: Path, tmp_path: Path) -> None:
    words = encoder()
    search = PlaitSearch(encoder=words, folder=tmp_path / "kept")
    first = scores_of(search, BeirFolderTask(folder))
    n_encoded = words.n_encoded
    assert scores_of(search, BeirFolderTask(folder)) == first
    assert words.n_encoded == n_encoded
    search.close()
    (path,) = (tmp_path / "kept").iterdir()
    with plait.open(path, encoder=words) as index:
        index.add([{"id": "other", "text": "another corpus"}])
    with pytest.raises(ConfigError, match="another folder"):
        scores_of(search, BeirFolderTask(folder))
    search.close()


def test_a_temporary_index_is_removed(folder: Path) -> None:
    search = PlaitSearch(encoder=encoder())
    scores_of(search, BeirFolderTask(folder))
    assert search._index is not None
    path = search._index.path
    assert path.exists()
    search.close()
    assert not path.exists()


def test_what_cannot_work_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError):
        PlaitSearch(mode=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not both"):
        PlaitSearch("plait-small", encoder=encoder())
    with pytest.raises(ConfigError, match="before index"):
        PlaitSearch(encoder=encoder()).search([], top_k=1)
    with pytest.raises(ModelError, match="no sparse"):
        PlaitEncoder(WordEncoder(), kind="sparse")
    with pytest.raises(ConfigError, match="kind"):
        PlaitEncoder(encoder(), kind="colour")  # type: ignore[arg-type]
    task = BeirFolderTask(folder)
    for rows in ([{"id": "1", "text": None}], [{"id": "1", "image": b""}]):
        with pytest.raises(InputError, match="no text"):
            PlaitSearch(encoder=encoder()).index(rows, task_metadata=task.metadata, hf_split="test", hf_subset="x")


def test_dense_vectors_serve_other_tasks_and_multi_vectors_do_not(folder: Path) -> None:
    metadata = BeirFolderTask(folder).metadata.model_copy(update={"type": "STS", "name": "pairs"})
    batches = [{"text": ["a loom", "a heart"]}, {"text": ["a ship"]}]
    dense = PlaitEncoder(encoder())
    vectors = dense.encode(batches, task_metadata=metadata, prompt_type=PromptType.query)
    assert vectors.shape == (3, 16)
    np.testing.assert_allclose(dense.similarity_pairwise(vectors, vectors), 1, rtol=1e-5)
    sparse = PlaitEncoder(encoder(), kind="sparse").encode(batches, task_metadata=metadata)
    assert isinstance(sparse, np.ndarray)
    with pytest.raises(ConfigError, match="one vector"):
        PlaitEncoder(encoder(), kind="multi").encode(batches, task_metadata=metadata)


def test_the_command_prints_both_evaluations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--mode", "bm25", "--mode", "dense"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines] == [
        [mode, name] for mode in ("bm25", "dense") for name in ("nDCG@10", "R@100", "AP@100")
    ]
    assert all(abs(float(line[3]) - float(line[5])) <= TOLERANCE for line in lines)
    assert all(0 < float(line[3]) <= 1 for line in lines)
    assert main([str(folder / "missing")]) == 2
    assert "no folder" in capsys.readouterr().err


def test_the_table_of_a_task_is_local(folder: Path) -> None:
    task = BeirFolderTask(folder)
    task.load_data()
    corpus = task.dataset["default"]["test"]["corpus"]
    assert isinstance(corpus, Table)
    assert "blank" not in corpus["id"]
