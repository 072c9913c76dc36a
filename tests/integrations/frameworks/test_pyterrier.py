"""PyTerrier: pipelines and experiments, without Java."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, R, nDCG

import plait
from encoders import WordEncoder
from integrations.judged import write_beir
from integrations.samples import OverlapScorer, make_index
from plait.errors import ConfigError, DocumentError, QueryError
from plait.evaluate import Dataset, load_beir, measure, rank_dataset
from plait.integrations.datasets import qrels_frame, topics_frame
from plait.integrations.pyterrier import PlaitIndexer, PlaitReranker, PlaitRetriever, PlaitScorer

COLUMNS = ["qid", "query", "docno", "score", "rank"]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[plait.Index]:
    with make_index(tmp_path, long=True) as index:
        yield index


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_beir(write_beir(tmp_path_factory.mktemp("beir") / "topics"))


@pytest.fixture
def corpus(judged: Dataset, tmp_path: Path) -> Iterator[plait.Index]:
    documents = ({"docno": one.id, "text": one.text, "title": one.title} for one in judged.documents())
    index = PlaitIndexer(tmp_path / "corpus", encoder=WordEncoder()).index(documents)
    yield index
    index.close()


def test_queries_become_ranked_documents(index: plait.Index) -> None:
    result = PlaitRetriever(index, num_results=2, include=("text", "year")).search("loom crosses warp")
    assert list(result.columns) == [*COLUMNS, "text", "year"]
    assert result["docno"].iloc[0] == "loom"
    assert result["year"].iloc[0] == 2019
    assert result["rank"].tolist() == [0, 1]
    assert result["score"].is_monotonic_decreasing


def test_no_queries_give_no_documents_with_the_same_columns(index: plait.Index) -> None:
    empty = pd.DataFrame({"qid": pd.Series(dtype=object), "query": pd.Series(dtype=object)})
    for pipeline in (PlaitRetriever(index), PlaitRetriever(index, include=("text",)) >> PlaitReranker(OverlapScorer())):
        result = pipeline(empty)
        assert len(result) == 0
        assert set(COLUMNS) <= set(result.columns)


def test_further_columns_of_queries_are_kept(index: plait.Index) -> None:
    queries = pd.DataFrame([{"qid": "1", "query": "loom", "source": "x"}])
    assert set(PlaitRetriever(index)(queries)["source"]) == {"x"}


def test_a_pipeline_reranks_and_cuts(index: plait.Index) -> None:
    retriever = PlaitRetriever(index, include=("text",))
    pipeline: Any = retriever % 3 >> PlaitReranker(OverlapScorer()) % 1
    result = pipeline.search("loom warp")
    assert result["docno"].tolist() == ["loom"]
    assert result["score"].tolist() == [2.0]


def test_a_scorer_scores_every_given_document(index: plait.Index) -> None:
    given = pd.DataFrame(
        [{"qid": "1", "query": "loom crosses warp", "docno": id} for id in ("heart", "loom", "no such document")]
    )
    for mode in ("multi", "dense", "bm25", "hybrid"):
        scored = PlaitScorer(index, mode=mode)(given).sort_values("rank")
        assert scored["docno"].iloc[0] == "loom", mode
        assert scored["docno"].tolist()[-1] == "no such document" or mode == "bm25"
        assert len(scored) == 3


def test_filters_and_modes_are_those_of_plait(index: plait.Index) -> None:
    german = PlaitRetriever(index, mode="dense", search={"filter": "lang = 'de'"})
    assert german.search("loom")["docno"].tolist() == ["webstuhl"]


def test_pipelines_are_fused(index: plait.Index) -> None:
    both: Any = 0.5 * PlaitRetriever(index, mode="bm25") + PlaitRetriever(index, mode="dense")
    assert both.search("loom crosses warp").sort_values("score", ascending=False)["docno"].iloc[0] == "loom"


@pytest.mark.parametrize("mode", ["hybrid", "bm25", "multi"])
def test_an_experiment_measures_what_plait_measures(judged: Dataset, corpus: plait.Index, mode: str) -> None:
    retriever = PlaitRetriever(corpus, mode=mode)
    table = pt.Experiment(
        [retriever, retriever % 5],
        topics_frame(judged),
        qrels_frame(judged),
        [nDCG @ 10, R @ 100, AP @ 100],
        names=["plait", "cut"],
        validate="error",
        plan="tree",
    )
    run = rank_dataset(corpus, judged, mode, 1000).run
    ours = measure(run, judged.qrels, ["nDCG@10", "R@100", "AP@100"])
    for name, value in ours.items():
        assert table.loc[0, name] == pytest.approx(value, abs=1e-9)
    assert table.loc[1, "R@100"] < table.loc[0, "R@100"]


def test_an_indexer_stores_the_other_fields(tmp_path: Path) -> None:
    rows = [{"docno": "1", "text": "A loom", "title": "Tools", "year": 2019, "extra": "x"}]
    with PlaitIndexer(tmp_path / "some", encoder=WordEncoder(), meta=["year"]).index(rows) as index:
        (document,) = index
        assert (document.title, document.metadata) == ("Tools", {"year": 2019})
    with PlaitIndexer(tmp_path / "all", encoder=WordEncoder()).index(rows) as index:
        assert next(iter(index)).metadata == {"year": 2019, "extra": "x"}


def test_what_cannot_work_is_refused(index: plait.Index, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        PlaitRetriever(index, num_results=0)
    with pytest.raises(ConfigError, match="sequence"):
        PlaitRetriever(index, include="text")
    with pytest.raises(QueryError, match="text"):
        PlaitRetriever(index)(pd.DataFrame([{"qid": "1", "query": 3}]))
    with pytest.raises(KeyError):
        PlaitReranker(OverlapScorer())(pd.DataFrame([{"qid": "1", "query": "x", "docno": "loom"}]))
    with pytest.raises(DocumentError, match="docno"):
        PlaitIndexer(tmp_path / "new", encoder=WordEncoder()).index([{"text": "no id"}])


def test_the_example_of_the_guide_answers(index: plait.Index) -> None:
    """Retrieval-augmented generation as a pipeline, with a language model that is fake."""

    def answer(group: pd.DataFrame) -> dict[str, Any]:
        best = group.sort_values("rank").iloc[0]
        return {"qid": best["qid"], "query": best["query"], "qanswer": f"{best['docno']}: {best['passage']}"}

    def generate(results: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame([answer(group) for _, group in results.groupby("qid")])

    reader = pt.apply.generic(generate)
    pipeline = PlaitRetriever(index, include=("passage",)) % 3 >> reader
    assert pipeline.search("what does a loom do")["qanswer"].tolist() == ["loom: A loom crosses warp and weft."]
