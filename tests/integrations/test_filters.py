"""Filters of frameworks become plait filters: checked on an index, beside a plain Python twin of each condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

import plait
from encoders import WordEncoder
from plait.errors import FilterError
from plait.integrations.filters import dictionaries, haystack, llama_index
from plait.integrations.filters.conditions import ALWAYS, NEVER, field_key, field_path, literal

DOCUMENTS: dict[str, dict[str, Any]] = {
    "plain": {"year": 2019, "lang": "en", "score": 0.5, "draft": False, "author": {"name": "Ada"}},
    "list": {"year": 2021, "lang": "de", "tags": ["tool", "cloth"], "draft": True},
    "odd": {"a.b": 1, "wei`rd": 'say "no"', "lang": "", "year": "2019", "percent": "50% off_now\\"},
    "bare": {},
}

pytestmark = pytest.mark.filterwarnings("ignore::plait.UnknownFieldWarning")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[plait.Index]:
    with plait.open(tmp_path_factory.mktemp("filters") / "index", create=True, encoder=WordEncoder()) as index:
        index.add([plait.Document(id, f"text of {id}", metadata=fields) for id, fields in DOCUMENTS.items()])
        yield index


def accepted(index: plait.Index, filter: str | None) -> set[str]:
    return {document.id for batch in index.iterate(filter=filter) for document in batch}


def those(holds: Callable[[dict[str, Any]], bool]) -> set[str]:
    return {id for id, fields in DOCUMENTS.items() if holds(fields)}


def never(of: dict[str, Any]) -> bool:
    del of
    return False


DICTIONARIES: list[tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
    ({"lang": "en"}, lambda of: of.get("lang") == "en"),
    ({"lang": None}, lambda of: of.get("lang") is None),
    ({"year": {"$gte": 2019, "$lt": 2021}}, lambda of: of.get("year") == 2019),
    ({"year": {"$ne": 2019}}, lambda of: of.get("year") != 2019),
    ({"year": {"$in": [2019, 2021]}}, lambda of: of.get("year") in (2019, 2021)),
    ({"year": {"$in": []}}, never),
    ({"year": {"$nin": [2019, 2021]}}, lambda of: of.get("year") not in (2019, 2021)),
    ({"draft": True}, lambda of: of.get("draft") is True),
    ({"score": {"$lte": 0.5}}, lambda of: "score" in of),
    ({"author.name": "Ada"}, lambda of: "author" in of),
    ({"tags": {"$contains": "tool"}}, lambda of: "tags" in of),
    ({"tags": {"$exists": False}}, lambda of: "tags" not in of),
    ({"wei`rd": 'say "no"'}, lambda of: "wei`rd" in of),
    ({"percent": {"$like": "50%"}}, lambda of: "percent" in of),
    ({"lang": {"$not": {"$eq": "en"}}}, lambda of: of.get("lang") != "en"),
    ({"$or": [{"lang": "en"}, {"lang": "de"}]}, lambda of: of.get("lang") in ("en", "de")),
    ({"$not": {"$and": [{"lang": "en"}, {"year": 2019}]}}, lambda of: of.get("lang") != "en"),
    ({"lang": "en", "year": 2021}, never),
]


@pytest.mark.parametrize(("filter", "holds"), DICTIONARIES, ids=[str(filter) for filter, _ in DICTIONARIES])
def test_a_dictionary_accepts_what_it_says(
    index: plait.Index, filter: dict[str, Any], holds: Callable[[dict[str, Any]], bool]
) -> None:
    assert accepted(index, dictionaries.filter_text(filter)) == those(holds)


@pytest.mark.parametrize("wrong", [
    3, {3: 1}, {"$nor": []}, {"$and": {}}, {"$and": [3]}, {"year": {"$near": 3}}, {"year": {"$in": "en"}}, {"year": []},
    {"year": {"$exists": 1}}, {"year": {"$like": 1}}, {"year": float("nan")}, {"": 1}, {"a": {"$not": 3}},
])  # fmt: skip
def test_a_wrong_dictionary_is_refused(wrong: Any) -> None:
    with pytest.raises(FilterError):
        dictionaries.filter_text(wrong)


def test_filters_cannot_be_nested_without_end() -> None:
    deep: dict[str, Any] = {"a": 1}
    for _ in range(40):
        deep = {"$not": deep}
    with pytest.raises(FilterError, match="deep"):
        dictionaries.filter_text(deep)


def test_text_is_a_plait_filter_already_and_nothing_accepts_everything(index: plait.Index) -> None:
    assert dictionaries.filter_text("year >= 2020") == "year >= 2020"
    assert dictionaries.filter_text({}) is dictionaries.filter_text(None) is None
    assert accepted(index, ALWAYS) == set(DOCUMENTS)
    assert accepted(index, NEVER) == set()


def test_no_name_or_value_becomes_syntax(index: plait.Index) -> None:
    hostile = '" or id != ""'
    assert accepted(index, dictionaries.filter_text({"lang": hostile})) == set()
    assert accepted(index, dictionaries.filter_text({"lang` is null or `lang": "x"})) == set()
    assert field_key("wei`rd.key") == "`wei``rd.key`"
    assert field_path("author.name") == "`author`.`name`"
    assert [literal(value) for value in (True, 3, 0.5, "a'b")] == ["true", "3", "0.5", '"a\'b"']


HAYSTACK: list[tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
    ({"field": "meta.lang", "operator": "==", "value": "en"}, lambda of: of.get("lang") == "en"),
    ({"field": "lang", "operator": "!=", "value": "en"}, lambda of: of.get("lang") != "en"),
    ({"field": "meta.year", "operator": ">", "value": 2019}, lambda of: of.get("year") == 2021),
    ({"field": "meta.year", "operator": ">", "value": None}, never),
    ({"field": "meta.lang", "operator": "in", "value": ["en", None]}, lambda of: of.get("lang") in ("en", None)),
    ({"field": "meta.lang", "operator": "not in", "value": ["en"]}, lambda of: of.get("lang") != "en"),
    ({"field": "id", "operator": "==", "value": "bare"}, lambda of: not of),
    ({"field": "content", "operator": "==", "value": "text of bare"}, lambda of: not of),
]


@pytest.mark.parametrize(("filter", "holds"), HAYSTACK, ids=[str(filter) for filter, _ in HAYSTACK])
def test_a_condition_of_haystack_accepts_what_it_says(
    index: plait.Index, filter: dict[str, Any], holds: Callable[[dict[str, Any]], bool]
) -> None:
    assert accepted(index, haystack.filter_text(filter)) == those(holds)
    negated = {"operator": "NOT", "conditions": [filter]}
    assert accepted(index, haystack.filter_text(negated)) == set(DOCUMENTS) - those(holds)
    either = {"operator": "OR", "conditions": [filter, negated]}
    assert accepted(index, haystack.filter_text(either)) == set(DOCUMENTS)
    assert accepted(index, haystack.filter_text({"operator": "AND", "conditions": [filter, negated]})) == set()


@pytest.mark.parametrize("wrong", [
    {"field": "embedding", "operator": "==", "value": 1}, {"field": "meta.a", "operator": "~", "value": 1},
    {"field": "meta.a", "operator": ">", "value": "soon"}, {"field": "meta.a", "operator": ">", "value": [1]},
    {"field": "meta.a", "operator": "in", "value": "x"}, {"operator": "AND"}, {"field": "meta.a", "operator": "=="},
    {"operator": "XOR", "conditions": []}, {"field": "meta.d", "operator": ">", "value": "2020-01-01T00:00:00+02:00"},
])  # fmt: skip
def test_a_wrong_condition_of_haystack_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FilterError):
        haystack.filter_text(wrong)


class Word(Enum):
    """Enumerations of LlamaIndex have the words as values."""

    AND, OR, NOT = "and", "or", "not"
    EQ, NE, GT, IN, NIN, CONTAINS, ANY, ALL = "==", "!=", ">", "in", "nin", "contains", "any", "all"
    TEXT_MATCH, INSENSITIVE, IS_EMPTY = "text_match", "text_match_insensitive", "is_empty"


def one(key: str, operator: Word, value: Any) -> SimpleNamespace:
    return SimpleNamespace(key=key, operator=operator, value=value)


def group(*filters: Any, condition: Word | None = Word.AND) -> SimpleNamespace:
    return SimpleNamespace(filters=list(filters), condition=condition)


LLAMA_INDEX: list[tuple[SimpleNamespace, Callable[[dict[str, Any]], bool]]] = [
    (one("lang", Word.EQ, "en"), lambda of: of.get("lang") == "en"),
    (one("lang", Word.NE, "en"), lambda of: of.get("lang") != "en"),
    (one("year", Word.GT, 2019), lambda of: of.get("year") == 2021),
    (one("year", Word.IN, [2019, 2021]), lambda of: of.get("year") in (2019, 2021)),
    (one("year", Word.NIN, [2019, 2021]), lambda of: of.get("year") not in (2019, 2021)),
    (one("tags", Word.CONTAINS, "tool"), lambda of: "tags" in of),
    (one("tags", Word.ANY, ["tool", "organ"]), lambda of: "tags" in of),
    (one("tags", Word.ALL, ["tool", "organ"]), never),
    (one("percent", Word.INSENSITIVE, "% OFF_n"), lambda of: "percent" in of),
    (one("percent", Word.INSENSITIVE, "% off%n"), never),
    (one("lang", Word.IS_EMPTY, None), lambda of: not of.get("lang")),
    (one("a.b", Word.EQ, 1), lambda of: "a.b" in of),
    (group(one("lang", Word.EQ, "en"), one("lang", Word.EQ, "de"), condition=Word.OR), lambda of: bool(of.get("lang"))),
]


@pytest.mark.parametrize(("filter", "holds"), LLAMA_INDEX, ids=[str(number) for number in range(len(LLAMA_INDEX))])
def test_a_filter_of_llama_index_accepts_what_it_says(
    index: plait.Index, filter: SimpleNamespace, holds: Callable[[dict[str, Any]], bool]
) -> None:
    assert accepted(index, llama_index.filter_text(group(filter))) == those(holds)
    assert accepted(index, llama_index.filter_text(group(filter, condition=None))) == those(holds)
    assert accepted(index, llama_index.filter_text(group(filter, condition=Word.NOT))) == set(DOCUMENTS) - those(holds)


def test_a_wrong_filter_of_llama_index_is_refused() -> None:
    for wrong in (7, group(one("lang", Word.TEXT_MATCH, "e")), group(one("lang", Word.IN, "en"))):
        with pytest.raises(FilterError):
            llama_index.filter_text(wrong)
    assert llama_index.filter_text(group()) is None
