"""BEIR folders, whole and with parts missing."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from plait.errors import InputError
from plait.evaluate import load_beir

FILES = {
    "corpus.jsonl": '{"_id": "d1", "title": "", "text": "x"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "one"}\n{"_id": 2, "text": "two"}\n{"_id": "q3", "text": "not judged"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n2\td1\t2\nlost\td1\t1\n",
}


def folder(path: Path, *, packed: bool = False, without: str = "", **changed: str) -> Path:
    changes = {f"{name}.jsonl": content for name, content in changed.items() if name != "qrels"}
    if "qrels" in changed:
        changes["qrels/test.tsv"] = changed["qrels"]
    for name, content in {**FILES, **changes}.items():
        if name != without:
            file = path / (f"{name}.gz" if packed else name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_the_judged_queries_of_a_split_are_read(tmp_path: Path, packed: bool) -> None:
    loaded = load_beir(folder(tmp_path, packed=packed), "test")
    assert loaded.queries == {"q1": "one", "2": "two"}
    assert loaded.qrels == {"q1": {"d1": 1, "d2": 0}, "2": {"d1": 2}}
    assert loaded.n_without_text == 1
    assert loaded.corpus is not None


def test_a_missing_split_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder has the splits test"):
        load_beir(folder(tmp_path), "dev")


def test_a_folder_that_is_not_beir_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is this a BEIR folder"):
        load_beir(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        load_beir(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"queries\.jsonl"):
        load_beir(folder(tmp_path, without="queries.jsonl"))


def test_an_index_is_measured_without_the_corpus(tmp_path: Path) -> None:
    assert load_beir(folder(tmp_path, without="corpus.jsonl")).corpus is None


def test_judgements_without_a_header_lose_no_line(tmp_path: Path) -> None:
    assert load_beir(folder(tmp_path, qrels="q1\td1\t1\n2\td1\t1\n")).qrels == {"q1": {"d1": 1}, "2": {"d1": 1}}


@pytest.mark.parametrize("line", ["q1\td1", "q1\td1\tyes", "q1 d1 1", "q1\td1\t1\t1", "q1\td1\tinf"])
def test_a_bad_judgement_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"test\.tsv, line 2"):
        load_beir(folder(tmp_path, qrels=f"query-id\tcorpus-id\tscore\n{line}\n"))


@pytest.mark.parametrize("line", ["x", "[]", '{"_id": "q1"}', '{"_id": "q1", "text": 5}', '{"_id": true, "text": "x"}'])
def test_a_bad_query_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"queries\.jsonl, line 1"):
        load_beir(folder(tmp_path, queries=line))


def test_judgements_of_other_queries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of the 1 judged queries"):
        load_beir(folder(tmp_path, qrels="other\td1\t1\n"))
    with pytest.raises(InputError, match="no judgements"):
        load_beir(folder(tmp_path, qrels="query-id\tcorpus-id\tscore\n"))


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    file = folder(tmp_path, packed=True) / "queries.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(InputError, match="cannot read"):
        load_beir(tmp_path)
