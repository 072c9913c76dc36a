"""Files of queries and of judgements."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from plait.errors import InputError
from plait.evaluate import read_qrels, read_queries
from plait.evaluate.dataset_files import n_without_relevant

QRELS = {"q1": {"a": 2, "b": 0}, "q2": {"c": -1}}


@pytest.mark.parametrize(
    "text",
    [
        "q1 0 a 2\nq1 0 b 0\n\nq2 Q0 c -1\n",
        "q1\t0\ta\t2\nq1\t0\tb\t0\nq2\t0\tc\t-1\n",
        "query-id\tcorpus-id\tscore\nq1\ta\t2\nq1\tb\t0.0\nq2\tc\t-1\n",
        "q1\ta\t2\nq1\tb\t0\nq1\tb\t0\nq2\tc\t-1\n",
    ],
)
def test_trec_and_tsv_judgements_are_recognised(tmp_path: Path, text: str) -> None:
    (tmp_path / "qrels").write_text(text)
    assert read_qrels(tmp_path / "qrels") == QRELS


def test_compressed_judgements_are_read(tmp_path: Path) -> None:
    (tmp_path / "qrels.gz").write_bytes(gzip.compress(b"q1 0 a 2\nq1 0 b 0\nq2 0 c -1\n"))
    assert read_qrels(tmp_path / "qrels.gz") == QRELS


@pytest.mark.parametrize("line", ["q1 0 a", "q1 0 a yes", "q1 0 a 0.5", "q1 0 a nan", "q1 0 a 1 x", "q1 0 a inf"])
def test_an_error_names_the_line_of_a_bad_judgement(tmp_path: Path, line: str) -> None:
    (tmp_path / "qrels").write_text(f"q1 0 z 1\n{line}\n")
    with pytest.raises(InputError, match="qrels, line 2: expected 'query 0 document relevance'"):
        read_qrels(tmp_path / "qrels")


def test_contradicting_judgements_are_refused(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q1 0 a 1\nq1 0 a 0\n")
    with pytest.raises(InputError, match="line 2: document 'a' was judged 1 for query 'q1' before"):
        read_qrels(tmp_path / "qrels")


def test_empty_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("\n")
    with pytest.raises(InputError, match="has no judgements"):
        read_qrels(tmp_path / "qrels")
    with pytest.raises(InputError, match="cannot read"):
        read_qrels(tmp_path / "nowhere")


def test_queries_without_relevant_documents_are_counted() -> None:
    assert n_without_relevant(QRELS) == 1


def test_queries_come_from_json_lines_and_from_tsv(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"_id": 1, "text": "one"}\n')
    (tmp_path / "q.dev.tsv.gz").write_bytes(gzip.compress(b"1\tone\n2\ttwo\tmore\n"))
    assert read_queries(tmp_path / "q.jsonl") == {"1": "one"}
    assert read_queries(tmp_path / "q.dev.tsv.gz") == {"1": "one", "2": "two\tmore"}


@pytest.mark.parametrize("text", ["1\tone\nno tab\n", "1\tone\n1\tanother\n"])
def test_an_error_names_the_bad_line_of_queries(tmp_path: Path, text: str) -> None:
    (tmp_path / "q.tsv").write_text(text)
    with pytest.raises(InputError, match=r"q\.tsv, line 2"):
        read_queries(tmp_path / "q.tsv")
