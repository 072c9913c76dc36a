"""`plait demo`: built once, asked every time, and never into somebody's own index."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.fakes import FakeIndex, Library
from plait.cli.app import app
from plait.cli.demo import ABOUT_ID, QUESTIONS
from plait.records import Document, Hit, Span

DOCUMENTS = [Document("time.sleep", "wait a while", "time.sleep()"), Document("os.walk", "parse a date")]


class DemoIndex(FakeIndex):
    """Knows the one filter that the demo uses."""

    def search(self, query: str, k: int = 10, **options: object) -> list[Hit]:
        if options.get("filter"):
            about = self.documents.get(ABOUT_ID)
            return [Hit(ABOUT_ID, 1.0, about.text, about.title, about.metadata, Span(0, 1), {})] if about else []
        return super().search(query, k, **options)


@pytest.fixture
def index(library: Library, monkeypatch: pytest.MonkeyPatch) -> DemoIndex:
    monkeypatch.setattr("plait.readers.stdlib.stdlib_documents", lambda: iter(DOCUMENTS))
    index = DemoIndex(Path("ix"))
    library.indexes["ix"] = index
    return index


def test_the_demo_indexes_and_searches(runner: CliRunner, index: DemoIndex) -> None:
    result = runner.invoke(app, ["demo", "--to", "ix"])
    assert result.exit_code == 0, result.output
    assert set(index.documents) == {ABOUT_ID, "time.sleep", "os.walk"}
    assert all(f"? {question}" in result.stdout for question in QUESTIONS)
    assert "time.sleep" in result.stdout
    assert "3 documents, 3 passages, 1.5 MB on disk" in result.stdout
    assert 'plait search ix "' in result.stdout


def test_the_demo_says_which_answers_it_missed(runner: CliRunner, index: DemoIndex) -> None:
    question, answer = next(iter(QUESTIONS.items()))
    runner.invoke(app, ["demo", "--to", "ix"])
    index.documents[answer] = Document(answer, question)
    result = runner.invoke(app, ["demo", "--to", "ix"])
    n_first = result.stdout.split(" answers are first")[0].splitlines()[-1]
    assert n_first == f"1 of {len(QUESTIONS)}", result.stdout
    assert result.stdout.count("The answer is ") == len(QUESTIONS) - 1
    assert f"The answer is {answer}" not in result.stdout


def test_every_answer_is_in_the_standard_library() -> None:
    from plait.readers.stdlib import stdlib_documents

    assert set(QUESTIONS.values()) <= {document.id for document in stdlib_documents()}


def test_the_second_run_only_searches(runner: CliRunner, index: DemoIndex) -> None:
    runner.invoke(app, ["demo", "--to", "ix"])
    del index.documents["os.walk"]
    result = runner.invoke(app, ["demo", "--to", "ix"])
    assert "already" in result.stdout
    assert "os.walk" not in index.documents


def test_the_demo_continues_after_ctrl_c_and_rebuilds_for_another_python(
    runner: CliRunner, index: DemoIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.interrupt_after = 2
    result = runner.invoke(app, ["demo", "--to", "ix"])
    assert result.exit_code == 130
    assert "Run plait demo again" in result.stderr
    index.interrupt_after = None
    assert "already" not in runner.invoke(app, ["demo", "--to", "ix"]).stdout
    assert "os.walk" in index.documents
    monkeypatch.setattr("platform.python_version", lambda: "9.9.9")
    assert "already" not in runner.invoke(app, ["demo", "--to", "ix"]).stdout


def test_an_index_of_the_user_is_not_changed(runner: CliRunner, index: DemoIndex) -> None:
    index.documents["mine"] = Document("mine", "text")
    result = runner.invoke(app, ["demo", "--to", "ix"])
    assert result.exit_code == 2
    assert "not of the demo" in result.stderr
    assert list(index.documents) == ["mine"]
