"""Datasets: BEIR folders, MS MARCO folders and ir_datasets, which a fake module replaces."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from plait.errors import ConfigError, InputError
from plait.evaluate import load_beir, load_dataset, load_msmarco
from plait.readers import SourceReport
from plait.records import Document

# -- BEIR

BEIR_FILES = {
    "corpus.jsonl": '{"_id": "d1", "title": "", "text": "x"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "one"}\n{"_id": 2, "text": "two"}\n{"_id": "q3", "text": "not judged"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n2\td1\t2\nlost\td1\t1\n",
}


def beir_folder(path: Path, *, compressed: bool = False, without: str = "", **changed: str) -> Path:
    changes = {f"{name}.jsonl": content for name, content in changed.items() if name != "qrels"}
    if "qrels" in changed:
        changes["qrels/test.tsv"] = changed["qrels"]
    for name, content in {**BEIR_FILES, **changes}.items():
        if name != without:
            file = path / (f"{name}.gz" if compressed else name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(gzip.compress(content.encode()) if compressed else content.encode())
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_a_beir_split_has_its_judged_queries(tmp_path: Path, compressed: bool) -> None:
    loaded = load_beir(beir_folder(tmp_path, compressed=compressed), "test")
    assert loaded.queries == {"q1": "one", "2": "two"}
    assert loaded.qrels == {"q1": {"d1": 1, "d2": 0}, "2": {"d1": 2}}
    assert loaded.n_without_text == 1
    assert loaded.corpus is not None


def test_a_missing_beir_split_is_refused_and_the_existing_ones_are_listed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder has the splits test"):
        load_beir(beir_folder(tmp_path), "dev")


def test_a_folder_that_is_not_beir_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is this a BEIR folder"):
        load_beir(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        load_beir(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"queries\.jsonl"):
        load_beir(beir_folder(tmp_path, without="queries.jsonl"))


def test_a_beir_folder_may_lack_the_corpus(tmp_path: Path) -> None:
    assert load_beir(beir_folder(tmp_path, without="corpus.jsonl")).corpus is None


def test_beir_judgements_without_a_header_lose_no_line(tmp_path: Path) -> None:
    assert load_beir(beir_folder(tmp_path, qrels="q1\td1\t1\n2\td1\t1\n")).qrels == {"q1": {"d1": 1}, "2": {"d1": 1}}


@pytest.mark.parametrize("line", ["q1\td1", "q1\td1\tyes", "q1 d1 1", "q1\td1\t1\t1", "q1\td1\tinf"])
def test_an_error_names_the_line_of_a_bad_judgement(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"test\.tsv, line 2"):
        load_beir(beir_folder(tmp_path, qrels=f"query-id\tcorpus-id\tscore\n{line}\n"))


@pytest.mark.parametrize("line", ["x", "[]", '{"_id": "q1"}', '{"_id": "q1", "text": 5}', '{"_id": true, "text": "x"}'])
def test_an_error_names_the_line_of_a_bad_query(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"queries\.jsonl, line 1"):
        load_beir(beir_folder(tmp_path, queries=line))


def test_judgements_of_other_queries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of the 1 judged queries"):
        load_beir(beir_folder(tmp_path, qrels="other\td1\t1\n"))
    with pytest.raises(InputError, match="no judgements"):
        load_beir(beir_folder(tmp_path, qrels="query-id\tcorpus-id\tscore\n"))


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    file = beir_folder(tmp_path, compressed=True) / "queries.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(InputError, match="cannot read"):
        load_beir(tmp_path)


# -- MS MARCO


@pytest.fixture
def marco(tmp_path: Path) -> Path:
    (tmp_path / "collection.tsv").write_text("7\ta passage\n8\t\n9\tanother\n")
    (tmp_path / "queries.dev.small.tsv").write_text("1\tone\n2\tnot judged\n")
    (tmp_path / "qrels.dev.small.tsv").write_text("1\t0\t7\t1\n5\t0\t9\t1\n")
    return tmp_path


def test_an_ms_marco_folder_is_read(marco: Path) -> None:
    dataset = load_dataset(marco, "dev.small")
    assert (dataset.queries, dataset.qrels, dataset.n_without_text) == ({"1": "one"}, {"1": {"7": 1}}, 1)
    report = SourceReport()
    assert [document.id for document in dataset.documents(report)] == ["7", "9"]
    assert report.n_errors == 1  # the blank one


def test_a_missing_ms_marco_split_is_refused_and_the_existing_ones_are_listed(marco: Path) -> None:
    with pytest.raises(InputError, match=r"the folder has the splits dev\.small"):
        load_dataset(marco, "test")
    (marco / "queries.dev.small.tsv").unlink()
    with pytest.raises(InputError, match=r"no .*queries\.dev\.small\.tsv"):
        load_msmarco(marco)
    with pytest.raises(InputError, match="there is no folder"):
        load_msmarco(marco / "nowhere")


def test_a_dataset_without_a_corpus_yields_no_documents(marco: Path) -> None:
    (marco / "collection.tsv").unlink()
    with pytest.raises(InputError, match="has no corpus"):
        load_dataset(marco, "dev.small").documents()


# -- ir_datasets


@dataclass
class FakeIrDataset:
    """The part of an ir_datasets dataset that plait reads."""

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


def install_fake(monkeypatch: pytest.MonkeyPatch, dataset: FakeIrDataset) -> None:
    module = SimpleNamespace(load=lambda id: {"small/test": dataset}[id])
    monkeypatch.setitem(sys.modules, "ir_datasets", module)


def test_an_ir_datasets_dataset_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    install_fake(monkeypatch, FakeIrDataset())
    dataset = load_dataset("irds:small/test")
    assert (dataset.name, dataset.split, dataset.path) == ("small-test", "test", "irds:small/test")
    assert dataset.queries == {"1": "one", "2": "a topic"}
    assert dataset.qrels == {"1": {"a": 2}, "2": {"b": 0}}
    report = SourceReport()
    documents = [Document("a", "the text", "the title"), Document("b", "the body"), Document("c", "an abstract")]
    assert list(dataset.documents(report)) == documents
    assert report.n_errors == 1


def test_an_unknown_or_incomplete_ir_datasets_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install_fake(monkeypatch, FakeIrDataset(queries=False))
    with pytest.raises(InputError, match="has no dataset 'large'"):
        load_dataset("irds:large")
    with pytest.raises(InputError, match="has no queries"):
        load_dataset("irds:small/test")


def test_without_ir_datasets_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(ConfigError, match=r"plait\[ir-datasets\]"):
        load_dataset("irds:small/test")
