"""DSPy: a retriever in programs, and as the retrieval model of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM

import plait
from integrations.samples import make_index
from plait.errors import ConfigError
from plait.integrations.dspy import PlaitRetriever


@pytest.fixture
def index(tmp_path: Path) -> Iterator[plait.Index]:
    with make_index(tmp_path, long=True) as index:
        yield index


def test_a_call_gives_passages_with_ids_and_scores(index: plait.Index) -> None:
    result = PlaitRetriever(index, k=2)("loom crosses warp")
    assert result.passages[0] == "A loom crosses warp and weft."
    assert result.ids[0] == "loom"
    assert result.scores == sorted(result.scores, reverse=True)
    assert result.metadata[0]["year"] == 2019
    assert len(PlaitRetriever(index)("loom", k=1).passages) == 1


def test_long_documents_give_their_passage(index: plait.Index) -> None:
    (passage,) = PlaitRetriever(index, k=1)("needle").passages
    (document,) = PlaitRetriever(index, k=1, content="document")("needle").passages
    assert "needle" in passage
    assert len(passage) < len(document)


def test_a_filter_of_a_call_replaces_the_one_of_the_retriever(index: plait.Index) -> None:
    search = PlaitRetriever(index, k=9, filter={"lang": "de"})
    assert search("loom").ids == ["webstuhl"]
    assert "webstuhl" not in search("loom", filter="lang = 'en'").ids


@pytest.mark.parametrize("wrong", [{"k": 0}, {"content": "x"}, {"search": {"depth": 1}}])
def test_what_cannot_work_is_refused(index: plait.Index, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PlaitRetriever(index, **wrong)


def test_a_call_for_0_passages_is_refused(index: plait.Index) -> None:
    with pytest.raises(ConfigError, match="k is 0"):
        PlaitRetriever(index)("loom", k=0)


def test_dspy_retrieve_uses_it(index: plait.Index) -> None:
    with dspy.context(rm=PlaitRetriever(index).as_rm()):
        assert dspy.Retrieve(k=1)("loom crosses warp").passages == ["A loom crosses warp and weft."]


async def test_asyncio(index: plait.Index) -> None:
    assert (await PlaitRetriever(index, k=1).acall("loom")).ids == ["loom"]


def test_an_agent_searches_with_a_tool(index: plait.Index) -> None:
    calls = {"next_thought": "Look.", "next_tool_name": "search", "next_tool_args": {"query": "loom crosses warp"}}
    end = {"next_thought": "Enough.", "next_tool_name": "finish", "next_tool_args": {}}
    model = DummyLM([calls, end, {"reasoning": "It says so.", "answer": "It crosses warp and weft."}])
    with dspy.context(lm=model):
        answer = dspy.ReAct("question -> answer", tools=[PlaitRetriever(index, k=1).as_tool()])(question="a loom?")
    assert answer.trajectory["observation_0"] == ["A loom crosses warp and weft."]


def test_copies_of_a_program_share_the_index(index: plait.Index) -> None:
    program = Answer(PlaitRetriever(index, k=1))
    copied = program.deepcopy()
    assert copied.search.index is index
    assert copied.respond is not program.respond


class Answer(dspy.Module):
    """Retrieval-augmented generation."""

    def __init__(self, search: PlaitRetriever) -> None:
        super().__init__()
        self.search = search
        self.respond = dspy.Predict("context: list[str], question: str -> answer: str")

    def forward(self, question: str) -> Any:
        return self.respond(context=self.search(question).passages, question=question)


def test_a_program_answers_from_passages(index: plait.Index) -> None:
    model = DummyLM([{"answer": "It crosses warp and weft."}])
    with dspy.context(lm=model):
        assert Answer(PlaitRetriever(index, k=1))(question="what does a loom do").answer == "It crosses warp and weft."
    assert "A loom crosses warp and weft." in str(model.history[0]["messages"])
