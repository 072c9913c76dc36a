"""Filters in SQLite, compared with the same conditions evaluated in Python over the same documents."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.errors import FilterError
from plait.filters import compile_filter, register_functions

Metadata = Mapping[str, Any]
Predicate = Callable[[Metadata], bool]


def matching(filter: str, metadata: list[Any], *, ensure_ascii: bool = False) -> list[int]:
    """Which of the documents with this metadata pass; document i has id di, title Ti and text "body i"."""
    condition = compile_filter(filter)
    with sqlite3.connect(":memory:") as database:
        register_functions(database)
        database.execute("create table documents (id text, title text, text text, metadata text)")
        database.executemany(
            "insert into documents values (?, ?, ?, ?)",
            [(f"d{i}", f"T{i}", f"body {i}", json.dumps(m, ensure_ascii=ensure_ascii)) for i, m in enumerate(metadata)],
        )
        rows = database.execute(f"select rowid - 1, {condition.sql} from documents order by 1", condition.parameters)
        answers = list(rows)
    database.close()
    assert {answer for _, answer in answers} <= {0, 1}, "a condition must never be NULL"
    return [number for number, answer in answers if answer]


def matches(filter: str, metadata: Any) -> bool:
    return matching(filter, [metadata]) == [0]


# -- one claim at a time


@pytest.mark.parametrize(
    ("filter", "metadata"),
    [
        ('year >= 2020 and lang in ("en", "de") and not archived', {"year": 2021, "lang": "de"}),
        ("year = 2020 or year == 2021", {"year": 2021}),
        ("year <> 2020", {"year": 2021}),
        ("2000 <= year and 2030 > year", {"year": 2021}),
        ("price < 1e3 and price > -.5", {"price": 1.5}),
        ("name like '%OVEN%'", {"name": "woven"}),
        ("name not like 'a%'", {"name": "woven"}),
        (r"rate like '100\\%'", {"rate": "100%"}),
        ("lang not in ('en')", {"lang": "de"}),
        ("author.name = 'Ada'", {"author": {"name": "Ada"}}),
        ("author is not null and x is null", {"author": {}, "x": None}),
        ("x = null and author != null", {"author": {}}),
        ("done", {"done": True}),
        ("done = true and open = false", {"done": True, "open": False}),
        ("'x' in tags and 3 in tags and true in tags", {"tags": ["x", 3, True]}),
        ("'y' not in tags", {"tags": ["x"]}),
        ("NOT a AND NOT b OR c", {"a": True, "c": True}),
        ("`content type` = 'a'", {"content type": "a"}),
        ("content-type = 'a'", {"content-type": "a"}),
        ("`a``b` = 1", {"a`b": 1}),
        ("`and`", {"and": True}),
        ("`id` = 7 and `text` = 8", {"id": 7, "text": 8}),
        ("वर्ष > 5 and `größe.x` = 'ß'", {"वर्ष": 6, "größe.x": "ß"}),
        (r"""s = "a\"b\\c\nd\u00e9\ud83d\ude00" """, {"s": 'a"b\\c\ndé😀'}),
        ("s = 'it\\'s'", {"s": "it's"}),
        ("n = 123456789012345678901234567890", {"n": 123456789012345678901234567890}),
        ("date >= '2024-01-31'", {"date": "2024-02-01"}),
        ("id = 'd0' and title like 't_' and text != 'x'", {}),
        ("text like '%BODY%' and id in ('a', 'd0')", {}),
    ],
)
def test_a_filter_accepts_what_it_describes(filter: str, metadata: Metadata) -> None:
    assert matches(filter, metadata)


@pytest.mark.parametrize(
    ("filter", "metadata"),
    [
        ("year > 'abc'", {"year": 2020}),
        ("year > 5", {"year": "2020"}),
        ("year = 1", {"year": True}),
        ("flag", {"flag": 1}),
        ("flag", {"flag": "true"}),
        ("tags = 'x'", {"tags": ["x"]}),
        ("'x' in tags", {"tags": "x"}),
        ("'x' in tags", {"tags": {"a": "x"}}),
        ("1 in tags", {"tags": [True, "1"]}),
        ("name like '%1%'", {"name": 11}),
        (r"rate like '100\\%'", {"rate": "1000"}),
        ("a.b = 1", {"a.b": 1}),
        ("`a.b` = 1", {"a": {"b": 1}}),
        ("a.b = 1", {"a": '{"b": 1}'}),
        ("`é`.b = 1", {"é": '{"b": 1}'}),
        ("`0` = 1", {"x": [1]}),
        ("x.`0` = 1", {"x": [1]}),
    ],
)
def test_values_are_compared_within_their_type(filter: str, metadata: Metadata) -> None:
    assert not matches(filter, metadata)


@pytest.mark.parametrize("missing", [{}, {"x": None}])
@pytest.mark.parametrize(
    "comparison",
    [
        "x = 1",
        "x != 1",
        "x < 1",
        "x in (1)",
        "x not in (1)",
        "x like '%'",
        "x not like 'a'",
        "1 in x",
        "1 not in x",
        "x",
    ],
)
def test_a_comparison_with_a_missing_field_is_false_and_its_negation_true(comparison: str, missing: Metadata) -> None:
    assert not matches(comparison, missing)
    assert matches(f"not ({comparison})", missing)


def test_values_of_different_types_differ() -> None:
    assert matching("x != 1", [{"x": "1"}, {"x": [1]}, {"x": 1.0}, {}]) == [0, 1]


@pytest.mark.parametrize(
    "key", ["a b", 'a"b', "a\\b", "a.b", "$", "[0]", "é", "键", "a\nb", "'", "a'; drop table x; --"]
)
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_any_key_can_be_named(key: str, ensure_ascii: bool) -> None:
    field = f"`{key}`"
    documents = [{key: "v"}, {"other": "v"}, {"outer": {key: "v"}}]
    assert matching(f"{field} = 'v'", documents, ensure_ascii=ensure_ascii) == [0]
    assert matching(f"outer.{field} = 'v'", documents, ensure_ascii=ensure_ascii) == [2]
    assert matching(f"{field} is null", documents, ensure_ascii=ensure_ascii) == [1, 2]


@pytest.mark.parametrize(
    "hostile", ["'; drop table documents; --", '" or 1=1 --', "? or 1", "%s", ":name", "$.x", "*/", "x' or 'a'='a"]
)
def test_sql_in_a_filter_is_only_text(hostile: str) -> None:
    quoted = json.dumps(hostile)
    assert matching(f"x = {quoted}", [{"x": hostile}, {"x": "other"}]) == [0]
    assert matching(f"`{hostile}` = {quoted}", [{hostile: hostile}, {"x": 1}]) == [0]
    condition = compile_filter(f"x = {quoted} or {quoted} in `{hostile}` or y like {quoted}")
    assert hostile not in condition.sql


@pytest.mark.parametrize(
    ("filter", "position", "advice"),
    [
        ("a && b", 2, "and"),
        ("a & b", 2, "and"),
        ("a || b", 2, "or"),
        ("a | b", 2, "or"),
        ("!a", 0, "not"),
        ("year => 3", 5, ">="),
        ("year =< 3", 5, "<="),
        ("year === 3", 5, "write ="),
        ("lang = en", 7, "quotes"),
        ("lang = “en”", 7, "straight quotes"),
        ("day > 2020-01-01", 6, "quotes"),
        ("x in [1]", 5, "parentheses"),
        ("x in 1", 5, "parentheses"),
        ("x in ()", 6, "value"),
        ("x in (1 2)", 8, "comma"),
        ("x in (1, null)", 9, "is null"),
        ("x = 1;", 5, "semicolon"),
        ("x > true", 4, "order"),
        ("x > null", 4, "is null"),
        ("x is 5", 5, "= or !="),
        ("x like 5", 7, "pattern"),
        (r"x like 'a\\'", 7, "backslash"),
        ("id = 5", 5, "quotes"),
        ("id in ('a', 5)", 12, "quotes"),
        ("title", 5, "compared"),
        ("'x' in title", 7, "like"),
        ("and = 1", 0, "backticks"),
        ("x = 'abc", 4, "closed"),
        ("`x = 1", 0, "closed"),
        ("`` = 1", 0, "no name"),
        ("(x = 1", 0, "closed"),
        ("x = 1)", 5, "end"),
        ("x = 1 y", 6, "and"),
        ("x y", 2, "comparison"),
        ("x =", 3, "ends"),
        ("x = 1e999", 4, "too large"),
        (r"x = '\q'", 5, "escape"),
        (r"x = '\u12'", 5, "four"),
        (r"x = '\ud800'", 4, "surrogate"),
        ("x = '\udc80'", 5, "cannot"),
        ("x = '\0'", 5, "cannot"),
        ("x # 1", 2, "backticks"),
        ("1 = 1", 4, "field"),
        ("x not 1", 6, "in or like"),
    ],
)
def test_an_error_points_at_its_position_with_advice(filter: str, position: int, advice: str) -> None:
    with pytest.raises(FilterError, match=re.escape(advice)) as caught:
        compile_filter(filter)
    _, shown, caret = str(caught.value).split("\n")
    assert caret.index("^") == 4 + position
    assert shown.startswith("    ")


def test_the_caret_is_under_the_position_after_wide_characters() -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter("日本 & 1")
    assert str(caught.value).endswith("\n    日本 & 1\n         ^")


def test_a_long_filter_is_shown_around_the_position_only() -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter("x = 1 or " * 100 + "&" + " or x = 1" * 100)
    assert max(map(len, str(caught.value).split("\n"))) < 100


# -- size


@pytest.mark.parametrize(
    "hostile", ["(" * 10_000, "(" * 10_000 + "x" + ")" * 10_000, "not (" * 5_000 + "x" + ")" * 5_000]
)
def test_deep_nesting_is_refused(hostile: str) -> None:
    with pytest.raises(FilterError, match="nested"):
        compile_filter(hostile)


@pytest.mark.parametrize(
    "hostile", ["x = 1 or " * 20_000 + "y", "x" * 300_000, ".".join("x" * 40), "x in (" + "1, " * 30_000 + "1)"]
)
def test_a_filter_too_large_for_sqlite_is_refused(hostile: str) -> None:
    with pytest.raises(FilterError):
        compile_filter(hostile)


def test_the_deepest_and_the_longest_filters_run() -> None:
    assert matches("not (" * 99 + "x != 1" + ")" * 99, {"x": 1})
    assert matches("not " * 10_000 + "x", {"x": True})
    assert matches("y or " * 999 + "x", {"x": True})
    assert matches("x in (" + ", ".join(map(str, range(10_000))) + ")", {"x": 9_999})
    assert matches(f"x like '{'_%' * 50}{'a' * 900}'", {"x": "b" * 50 + "a" * 900})
    assert matches(f"{'.'.join(['é'] * 32)} is null", {})


@pytest.mark.parametrize("leaf", ["1 not in é.ö", "é.ö != 1", "title not in ('a', 'b')", "1 in x"])
def test_sqlite_runs_and_and_or_nested_to_the_allowed_depth(leaf: str) -> None:
    deepest = leaf
    for level in range(14):
        deepest = f"{leaf} {('and', 'or')[level % 2]} ({deepest})"
    condition = compile_filter(deepest)
    with sqlite3.connect(":memory:") as database:
        register_functions(database)
        database.execute("create table documents (id text, title text, text text, metadata text)")
        nested = f"select 1 where 1 = (select count(*) from (select id from documents where 1 and ({condition.sql})))"
        database.execute(nested, condition.parameters)
    database.close()
    with pytest.raises(FilterError, match="deep"):
        compile_filter("x or (y and (" * 10 + "z" + "))" * 10)


@pytest.mark.parametrize("not_a_filter", ["", "  \n ", None, 5])
def test_a_filter_that_is_not_text_is_refused(not_a_filter: Any) -> None:
    with pytest.raises(FilterError):
        compile_filter(not_a_filter)


@given(st.text(max_size=60) | st.text("()'\"`=<>!&|., \\xandotrilke10-", max_size=40))
def test_any_text_is_a_filter_or_a_filter_error(text: str) -> None:
    try:
        matches(text, {"x": 1})
    except FilterError as error:
        assert error.args[0].startswith(("cannot read", "the filter"))  # noqa: PT017 -- either way is right


# -- random conditions, read by SQLite and by Python

NAMES = ["a", "b", "c", "é", 'q"', "nested.a", "nested.é"]
TEXTS = st.sampled_from(["", "a", "A", "ab", "b", "x%", "_", "é", "'", '"', "\\", "1", "true", "日本"])
NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, -1.5, 1.0, 2.0, 1e20])
VALUES = TEXTS | NUMBERS | st.booleans()
MEMBERS = st.none() | VALUES | st.lists(VALUES | st.none(), max_size=3)
FLAT = st.dictionaries(st.sampled_from(["a", "b", "c", "é", 'q"']), MEMBERS, max_size=5)
METADATA = st.builds(
    lambda flat, nested: {**flat, **nested}, FLAT, st.fixed_dictionaries({}, optional={"nested": FLAT | VALUES})
)


def lookup(metadata: Any, name: str) -> Any:
    for part in name.split("."):
        if not isinstance(metadata, dict) or part not in metadata:
            return None
        metadata = metadata[part]
    return metadata


def kind(value: Any) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def same(left: Any, right: Any) -> bool:
    return kind(left) is kind(right) and bool(left == right)


def like(text: Any, pattern: str) -> bool:
    lower = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
    pieces = {"%": ".*", "_": "."}
    regex = "".join(pieces.get(char, re.escape(char)) for char in pattern.translate(lower))
    return isinstance(text, str) and re.fullmatch(regex, text.translate(lower), re.DOTALL) is not None


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": same,
    "==": same,
    "<": lambda left, right: kind(left) is kind(right) and left < right,
    "<=": lambda left, right: kind(left) is kind(right) and left <= right,
    ">": lambda left, right: kind(left) is kind(right) and left > right,
    ">=": lambda left, right: kind(left) is kind(right) and left >= right,
    "!=": lambda left, right: left is not None and not same(left, right),
    "<>": lambda left, right: left is not None and not same(left, right),
}


def named(name: str) -> str:
    return ".".join(f"`{part}`" if '"' in part else part for part in name.split("."))


def literal(value: Any) -> str:
    return json.dumps(value)


@st.composite
def atoms(draw: st.DrawFn) -> tuple[str, Predicate]:
    name = draw(st.sampled_from(NAMES))
    form = draw(st.sampled_from(["compare", "flipped", "in", "member", "like", "null", "bare"]))
    negated = draw(st.booleans())
    word = "not " if negated else ""

    def value(metadata: Metadata) -> Any:
        return lookup(metadata, name)

    def positive_or_differs(test: Callable[[Any], bool]) -> Predicate:
        return lambda m: value(m) is not None and not test(value(m)) if negated else test(value(m))

    match form:
        case "compare" | "flipped":
            operator = draw(st.sampled_from(sorted(COMPARISONS)))
            right = draw(VALUES if operator in ("=", "==", "!=", "<>") else TEXTS | NUMBERS)
            mirror = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
            written = (
                f"{named(name)} {operator} {literal(right)}"
                if form == "compare"
                else f"{literal(right)} {mirror} {named(name)}"
            )
            return written, lambda m: COMPARISONS[operator](value(m), right)
        case "in":
            many = draw(st.lists(VALUES, min_size=1, max_size=4))
            written = f"{named(name)} {word}in ({', '.join(map(literal, many))})"
            return written, positive_or_differs(lambda seen: any(same(seen, one) for one in many))
        case "member":
            one = draw(VALUES)
            written = f"{literal(one)} {word}in {named(name)}"
            return written, positive_or_differs(lambda seen: isinstance(seen, list) and any(same(x, one) for x in seen))
        case "like":
            pattern = draw(TEXTS.filter(lambda text: "\\" not in text))
            return f"{named(name)} {word}like {literal(pattern)}", positive_or_differs(lambda seen: like(seen, pattern))
        case "null":
            return f"{named(name)} is {word}null", lambda m: (value(m) is None) != negated
        case _:
            return named(name), lambda m: value(m) is True


def joined(parts: list[tuple[str, Predicate]], word: str) -> tuple[str, Predicate]:
    text = f" {word} ".join(f"({part})" for part, _ in parts)
    combine = all if word == "and" else any
    return text, lambda m: combine([predicate(m) for _, predicate in parts])


CONDITIONS = st.recursive(
    atoms(),
    lambda inner: (
        inner.map(lambda part: (f"not ({part[0]})", lambda m: not part[1](m)))
        | st.builds(joined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["and", "or"]))
    ),
    max_leaves=6,
)


@settings(max_examples=400, deadline=None)
@given(CONDITIONS, st.lists(METADATA, min_size=1, max_size=6), st.booleans())
def test_sqlite_and_python_agree_on_a_filter(
    condition: tuple[str, Predicate], documents: list[Metadata], ensure_ascii: bool
) -> None:
    filter, predicate = condition
    expected = [number for number, metadata in enumerate(documents) if predicate(metadata)]
    assert matching(filter, documents, ensure_ascii=ensure_ascii) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(atoms(), min_size=2, max_size=5), st.data(), st.lists(METADATA, min_size=1, max_size=4))
def test_not_binds_before_and_which_binds_before_or(
    parts: list[tuple[str, Predicate]], data: st.DataObject, documents: list[Metadata]
) -> None:
    signs = data.draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
    words = data.draw(st.lists(st.sampled_from(["and", "or"]), min_size=len(parts) - 1, max_size=len(parts) - 1))
    texts = [f"not {text}" if sign else text for (text, _), sign in zip(parts, signs, strict=True)]
    filter = texts[0] + "".join(f" {word} {text}" for word, text in zip(words, texts[1:], strict=True))

    def predicate(metadata: Metadata) -> bool:
        facts = [test(metadata) != sign for (_, test), sign in zip(parts, signs, strict=True)]
        return bool(eval(str(facts[0]) + "".join(f" {w} {f}" for w, f in zip(words, facts[1:], strict=True))))

    assert matching(filter, documents) == [number for number, metadata in enumerate(documents) if predicate(metadata)]
