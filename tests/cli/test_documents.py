"""plait get, count and similar, and the pages, order, groups and facets of plait search, on a real index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import plait
from plait.cli.app import app


@pytest.fixture
def index(tmp_path: Path) -> str:
    """Ten documents of text alone: searched by BM25, without a model."""
    documents = [
        {"id": f"d{number}", "text": "woven " * (10 - number) + "wool", "year": 2000 + number % 3, "tags": ["a", "b"]}
        for number in range(10)
    ]
    with plait.open(tmp_path / "ix", create=True, spec=plait.EmbeddingSpec()) as opened:
        opened.add_embeddings(documents, plait.Embeddings())
    return str(tmp_path / "ix")


def printed(runner: CliRunner, *arguments: str) -> list[dict[str, object]]:
    ended = runner.invoke(app, [*arguments, "--json"])
    assert ended.exit_code == 0, ended.output
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_pages_of_a_search_continue_the_ranks(runner: CliRunner, index: str) -> None:
    whole = printed(runner, "search", index, "woven")
    page = printed(runner, "search", index, "woven", "-k", "3", "--offset", "4")
    assert page == whole[4:7]
    assert [hit["rank"] for hit in page] == [5, 6, 7]
    assert runner.invoke(app, ["search", index, "woven", "-k", "1", "--offset", "9"]).stdout.startswith("10  ")


def test_sorted_and_grouped_hits(runner: CliRunner, index: str) -> None:
    by_year = printed(runner, "search", index, "woven", "--sort", "-year")
    years = [hit["metadata"]["year"] for hit in by_year]  # type: ignore[index]
    assert years == sorted(years, reverse=True)
    groups = printed(runner, "search", index, "woven", "--group-by", "year")
    assert sorted((hit["group"]["value"], hit["group"]["size"]) for hit in groups) == [  # type: ignore[index]
        (2000, 4),
        (2001, 3),
        (2002, 3),
    ]
    assert "and 3 more" in runner.invoke(app, ["search", index, "woven", "--group-by", "year"]).stdout


def test_facets_come_after_the_hits(runner: CliRunner, index: str) -> None:
    *_, years, tags = printed(runner, "search", index, "woven", "--facets", "year", "--facets", "tags")
    assert years == {"facets": "year", "counts": [[2000, 4], [2001, 3], [2002, 3]], "values": 3}
    assert tags["counts"] == [["a", 10], ["b", 10]]
    table = runner.invoke(app, ["search", index, "woven", "-k", "1", "--facets", "year"]).stdout
    assert [line.split() for line in table.splitlines()[-3:]] == [["2000", "4"], ["2001", "3"], ["2002", "3"]]


def test_documents_by_id(runner: CliRunner, index: str) -> None:
    ended = runner.invoke(app, ["get", index, "d9", "d8"])
    assert (ended.exit_code, ended.stdout) == (0, "woven wool\nwoven woven wool\n")
    (document,) = printed(runner, "get", index, "d9")
    assert document == {"id": "d9", "title": "", "text": "woven wool", "metadata": {"tags": ["a", "b"], "year": 2000}}


def test_an_id_that_is_not_in_the_index_exits_with_1(runner: CliRunner, index: str) -> None:
    ended = runner.invoke(app, ["get", index, "d9", "absent"])
    assert (ended.exit_code, ended.stdout) == (1, "woven wool\n")
    assert ended.stderr == "plait: not in the index: absent\n"


def test_counts(runner: CliRunner, index: str) -> None:
    assert runner.invoke(app, ["count", index]).stdout == "10\n"
    assert printed(runner, "count", index, "--filter", "year = 2000") == [{"documents": 4}]
    (facets,) = printed(runner, "count", index, "--filter", "year > 2000", "--by", "year", "-k", "1")
    assert facets == {"facets": "year", "counts": [[2001, 3]], "values": 2}
    assert "1 more values" in runner.invoke(app, ["count", index, "--by", "year", "-k", "2"]).stdout


def test_a_misspelt_field_is_named(runner: CliRunner, index: str) -> None:
    ended = runner.invoke(app, ["count", index, "--filter", "yaer > 2000"])
    assert (ended.exit_code, ended.stdout) == (0, "0\n")
    assert ended.stderr == "plait: no document has a field yaer; did you mean year?\n"


def test_similar_documents(runner: CliRunner, index: str) -> None:
    hits = printed(runner, "similar", index, "d4", "-k", "4", "--filter", "year < 2002")
    assert len(hits) == 4
    assert "d4" not in [hit["id"] for hit in hits]
    assert runner.invoke(app, ["similar", index, "d4"]).stdout.count("wool") == 9
    ended = runner.invoke(app, ["similar", index, "absent"])
    assert ended.exit_code == 2
    assert "there is no document 'absent'" in ended.stderr


def test_reranking_a_file_that_does_not_exist_is_wrong_use(runner: CliRunner) -> None:
    ended = runner.invoke(app, ["rerank", "nosuch"])
    assert ended.exit_code == 2
    assert ended.stderr.startswith("plait: cannot read nosuch: No such file or directory")
