"""Collections and runs of other libraries: a dataset that is registered with ir_datasets, and ranx."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ir_datasets
import pytest
import ranx
from ir_datasets.formats import TrecQrels, TsvDocs, TsvQueries
from ir_datasets.util import LocalDownload

import plait
from encoders import WordEncoder
from integrations.judged import write_beir
from plait.cli import main
from plait.errors import ConfigError, InputError
from plait.evaluate import load_beir, load_dataset, measure, rank_dataset, read_run, write_run
from plait.evaluate.runs import ordered
from plait.integrations.datasets import (
    beir_results,
    from_ir_datasets,
    from_ranx_run,
    to_ranx_qrels,
    to_ranx_run,
)

MEASURES = ["nDCG@10", "R@100", "AP"]
ID = "plait-topics/test"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("beir") / "topics")


@pytest.fixture
def registered(folder: Path, tmp_path: Path) -> Iterator[ir_datasets.Dataset]:
    """The sample as a dataset of ir_datasets, in tab-separated files."""
    judged = load_beir(folder)
    (tmp_path / "docs.tsv").write_text("".join(f"{one.id}\t{one.title} {one.text}\n" for one in judged.documents()))
    (tmp_path / "queries.tsv").write_text("".join(f"{id}\t{text}\n" for id, text in judged.queries.items()))
    lines = [f"{query} 0 {id} {value}\n" for query, one in judged.qrels.items() for id, value in one.items()]
    (tmp_path / "qrels").write_text("".join(lines))
    dataset = ir_datasets.Dataset(
        TsvDocs(LocalDownload(tmp_path / "docs.tsv"), namespace="plait-topics", lang="en"),
        TsvQueries(LocalDownload(tmp_path / "queries.tsv"), lang="en"),
        TrecQrels(LocalDownload(tmp_path / "qrels"), {0: "not", 1: "partly", 2: "fully"}),
    )
    ir_datasets.registry.register(ID, dataset)
    yield dataset
    del ir_datasets.registry._registered[ID]


def run_of(judged: plait.evaluate.Dataset, path: Path) -> dict[str, list[tuple[str, float]]]:
    with plait.open(path, create=True, encoder=WordEncoder()) as index:
        index.add(judged.documents())
        return dict(rank_dataset(index, judged, "hybrid", 100).run)


def test_a_registered_dataset_is_loaded_by_id_and_as_an_object(registered: ir_datasets.Dataset, folder: Path) -> None:
    original = load_beir(folder)
    for judged in (load_dataset(f"irds:{ID}"), from_ir_datasets(registered, "topics")):
        assert judged.queries == original.queries
        assert judged.qrels == original.qrels
        assert {one.id for one in judged.documents()} == {one.id for one in original.documents()}
    with pytest.raises(InputError, match="queries_iter"):
        from_ir_datasets("topics")


@pytest.mark.usefixtures("registered")
def test_the_command_line_indexes_and_measures_an_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", f"irds:{ID}", "--to", str(tmp_path / "index")]) == 0
    assert "60 documents added" in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "index"), "--data", f"irds:{ID}", "--mode", "bm25", "--json"]) == 0
    assert '"nDCG@10": 0.' in capsys.readouterr().out


@pytest.mark.usefixtures("registered")
def test_an_id_and_files_are_not_indexed_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", f"irds:{ID}", str(tmp_path), "--to", str(tmp_path / "index")]) == 2
    assert "in a run of its own" in capsys.readouterr().err


def test_ranx_measures_what_plait_measures(folder: Path, tmp_path: Path) -> None:
    judged = load_beir(folder)
    run = run_of(judged, tmp_path / "index")
    ours = measure(run, judged.qrels, MEASURES)
    theirs = ranx.evaluate(to_ranx_qrels(judged.qrels), to_ranx_run(run), ["ndcg@10", "recall@100", "map"])
    assert list(ours.values()) == pytest.approx(list(theirs.values()), abs=1e-6)
    again = from_ranx_run(to_ranx_run(run))
    ids = {query: [id for id, _ in ordered(ranking)] for query, ranking in run.items()}
    assert {query: [id for id, _ in ranking] for query, ranking in again.items()} == ids
    assert measure(again, judged.qrels, MEASURES) == pytest.approx(ours, abs=1e-12)
    with pytest.raises(ConfigError, match=r"ranx\.Run"):
        from_ranx_run({"q": {}})


def test_trec_runs_keep_the_measures(folder: Path, tmp_path: Path) -> None:
    judged = load_beir(folder)
    run = run_of(judged, tmp_path / "index")
    write_run(tmp_path / "run.trec", run)
    assert measure(read_run(tmp_path / "run.trec"), judged.qrels, MEASURES) == measure(run, judged.qrels, MEASURES)
    ranx_run = ranx.Run.from_file(str(tmp_path / "run.trec"), kind="trec")
    expected = beir_results(run)
    assert set(ranx_run.keys()) == set(expected)
    for query, scores in ranx_run.to_dict().items():
        assert scores == pytest.approx(expected[query], rel=1e-7)
