"""Sets by name: MS MARCO folders, BEIR folders and ir_datasets, for which a module stands in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from plait.errors import ConfigError, InputError
from plait.evaluate import load_dataset, load_msmarco
from plait.readers import SourceReport
from plait.records import Document


@pytest.fixture
def marco(tmp_path: Path) -> Path:
    (tmp_path / "collection.tsv").write_text("7\ta passage\n8\t\n9\tanother\n")
    (tmp_path / "queries.dev.small.tsv").write_text("1\tone\n2\tnot judged\n")
    (tmp_path / "qrels.dev.small.tsv").write_text("1\t0\t7\t1\n5\t0\t9\t1\n")
    return tmp_path


def test_a_folder_of_ms_marco_is_read(marco: Path) -> None:
    judged = load_dataset(marco, "dev.small")
    assert (judged.queries, judged.qrels, judged.n_without_text) == ({"1": "one"}, {"1": {"7": 1}}, 1)
    report = SourceReport()
    assert [document.id for document in judged.documents(report)] == ["7", "9"]
    assert report.n_errors == 1  # the blank one


def test_a_split_that_is_missing_is_refused_with_those_there_are(marco: Path) -> None:
    with pytest.raises(InputError, match=r"the folder has the splits dev\.small"):
        load_dataset(marco, "test")
    (marco / "queries.dev.small.tsv").unlink()
    with pytest.raises(InputError, match=r"no .*queries\.dev\.small\.tsv"):
        load_msmarco(marco)
    with pytest.raises(InputError, match="there is no folder"):
        load_msmarco(marco / "nowhere")


def test_a_set_without_a_corpus_cannot_be_indexed(marco: Path) -> None:
    (marco / "collection.tsv").unlink()
    with pytest.raises(InputError, match="has no corpus"):
        load_dataset(marco, "dev.small").documents()


@dataclass
class Dataset:
    """As much of an ir_datasets set as plait reads."""

    queries: bool = True

    def has_queries(self) -> bool:
        return self.queries

    def has_qrels(self) -> bool:
        return True

    def has_docs(self) -> bool:
        return True

    def queries_iter(self) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(query_id="1", text="one")
        yield SimpleNamespace(query_id="2", title="short", default_text=lambda: "a topic")

    def qrels_iter(self) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(query_id="1", doc_id="a", relevance=2, iteration="0")
        yield SimpleNamespace(query_id="2", doc_id="b", relevance=0, iteration="0")

    def docs_iter(self) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(doc_id="a", text="the text", title="the title")
        yield SimpleNamespace(doc_id="b", body="the body")
        yield SimpleNamespace(doc_id="c", abstract="x", default_text=lambda: "an abstract")
        yield SimpleNamespace(doc_id="d", text=" ")


def stand_in(monkeypatch: pytest.MonkeyPatch, dataset: Dataset) -> None:
    module = SimpleNamespace(load=lambda id: {"small/test": dataset}[id])
    monkeypatch.setitem(sys.modules, "ir_datasets", module)


def test_a_set_of_ir_datasets_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, Dataset())
    judged = load_dataset("irds:small/test")
    assert (judged.name, judged.split, judged.path) == ("small-test", "test", "irds:small/test")
    assert judged.queries == {"1": "one", "2": "a topic"}
    assert judged.qrels == {"1": {"a": 2}, "2": {"b": 0}}
    report = SourceReport()
    documents = [Document("a", "the text", "the title"), Document("b", "the body"), Document("c", "an abstract")]
    assert list(judged.documents(report)) == documents
    assert report.n_errors == 1


def test_a_set_that_ir_datasets_lacks_or_has_in_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, Dataset(queries=False))
    with pytest.raises(InputError, match="has no dataset 'large'"):
        load_dataset("irds:large")
    with pytest.raises(InputError, match="has no queries"):
        load_dataset("irds:small/test")


def test_without_ir_datasets_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(ConfigError, match="pip install ir-datasets"):
        load_dataset("irds:small/test")
