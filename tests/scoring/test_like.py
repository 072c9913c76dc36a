"""`like` by the kernel, compared with SQLite's operator."""

from __future__ import annotations

import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import FilterError
from plait.filters import compile_filter, register_functions
from plait.scoring import like as like_module
from plait.scoring.like import count_wildcards, like, longest_part

LETTERS = "abAB_%\\éÉß日😀z"
# The parser refuses patterns that end with a single backslash.
PATTERNS = st.text(LETTERS, max_size=12).filter(lambda text: (len(text) - len(text.rstrip("\\"))) % 2 == 0)


def sqlite_like(pattern: str, text: str) -> bool:
    connection = sqlite3.connect(":memory:")
    ((answer,),) = connection.execute(r"select ? like ? escape '\'", [text, pattern])
    connection.close()
    return bool(answer)


@given(PATTERNS, st.text(LETTERS.replace("\\", ""), max_size=12))
def test_like_agrees_with_sqlite(pattern: str, text: str) -> None:
    assert like(pattern, text) == sqlite_like(pattern, text)


@given(st.text("ab_%", max_size=6), st.integers(0, 200), st.text("ab", max_size=4))
def test_like_agrees_with_sqlite_on_parts_of_several_words(pattern: str, n: int, end: str) -> None:
    for long_pattern in (f"%{'a' * n}{pattern}{end}%", f"{pattern}%{'a_' * (n // 2)}{end}%"):
        for text in ("a" * 250, "a" * 250 + end, "ba" * 130 + end):
            assert like(long_pattern, text) == sqlite_like(long_pattern, text)


@pytest.mark.parametrize("pattern", [f"%{'a' * 990}b%", f"%{'a_' * 49}{'a' * 890}b%", "%a" * 49 + "%b"])
def test_a_hostile_pattern_takes_time_in_proportion_to_the_text(pattern: str) -> None:
    start = time.perf_counter()
    for _ in range(20):
        assert not like(pattern, "a" * 100_000)
    assert time.perf_counter() - start < 2  # SQLite: 5 to 7 seconds


@pytest.mark.parametrize("field", ["text", "name", "é.ö"])
def test_small_and_large_texts_give_the_same_answers(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """Rows choose SQLite's operator or the kernel by size; so both are asked about the same rows."""
    texts = ["", "woven", "WOVEN cloth", "a wOven", "wo ven", "% woven", "été", "ÉTÉ"]
    patterns = ["%woven%", "woven%", "%woven", "wo_en", r"\\%%", "_t_", "%", "", "a%n"]
    with sqlite3.connect(":memory:") as database:
        register_functions(database)
        database.execute("create table documents (text text, metadata text)")
        for text in texts:
            metadata = f'{{"name": "{text}", "é": {{"ö": "{text}"}}}}'
            database.execute("insert into documents values (?, ?)", [text, metadata])
        answers = []
        for max_steps in (1 << 15, 0):
            monkeypatch.setattr("plait.filters.sql.MAX_STEPS", max_steps)
            conditions = [compile_filter(f"{field} like '{pattern}'") for pattern in patterns]
            answers.append(
                [database.execute(f"select {c.sql} from documents", c.parameters).fetchall() for c in conditions]
            )
    database.close()
    assert answers[0] == answers[1]
    assert any((1,) in rows for rows in answers[0])


def test_parts_and_wildcards_are_counted() -> None:
    assert [longest_part(pattern) for pattern in ("", "%", "abc", "%ab%abc", r"a\%b%", r"\\%ab")] == [0, 0, 3, 3, 4, 2]
    assert [count_wildcards(pattern) for pattern in ("", "%_a", r"\%\_", r"\\%")] == [0, 2, 0, 1]


def test_patterns_have_limits() -> None:
    compile_filter(f"x like '{'a' * 1000}' and y like '{'_' * 100}'")
    with pytest.raises(FilterError, match=r"pattern of 1,001 characters .* at most 1,000"):
        compile_filter(f"x like '{'a' * 1001}'")
    with pytest.raises(FilterError, match=r"101 wildcards .* at most 100"):
        compile_filter(f"x like '{'%a' * 101}'")


def test_a_text_of_megabytes_is_matched() -> None:
    assert like_module.like("%b", "a" * 5_000_000 + "b")
