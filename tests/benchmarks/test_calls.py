"""The tasks of benchmarks/calls: plait's module gives the right answers, and lines are counted as documented."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

import plait
from benchmarks.calls import run, with_plait
from benchmarks.calls.count_lines import count_lines

FOLDER = Path(run.__file__).parent

SOURCE = '''
def _helper(x):
    """Not counted."""

    # not counted
    return _deeper(x)


def _deeper(x):
    return x


def first(x):
    """Not counted."""
    text = """two
    lines"""
    return _helper(text)


def second(x):
    return _helper(x)
'''


def test_plait_gives_the_right_answers() -> None:
    result = run.run_tasks(with_plait)
    assert result.wrong == []
    assert result.version == plait.__version__
    assert list(result.lines) == list(run.TASKS)


def test_a_wrong_answer_is_reported() -> None:
    def get(index: plait.Index, ids: Sequence[str]) -> dict[str, str]:
        return {id: "another text" for id in ids if id in index}

    tasks = {task: getattr(with_plait, task) for task in run.TASKS}
    names = {"PACKAGE": with_plait.PACKAGE, "BY_HAND": with_plait.BY_HAND, "__file__": with_plait.__file__}
    broken = cast(ModuleType, SimpleNamespace(**{**tasks, **names, "get": get}))
    wrong = run.run_tasks(broken).wrong
    assert [line.split(":")[0] for line in wrong] == ["get", "add_folder"]


def test_a_task_that_encodes_again_is_reported() -> None:
    def update(index: plait.Index, id: str, year: int) -> None:
        (old,) = index.get([id])
        assert old is not None
        index.add([{"id": id, "text": old.text + " ", **old.metadata, "year": year}])

    tasks = {task: getattr(with_plait, task) for task in run.TASKS}
    names = {"PACKAGE": with_plait.PACKAGE, "BY_HAND": with_plait.BY_HAND, "__file__": with_plait.__file__}
    slow = cast(ModuleType, SimpleNamespace(**{**tasks, **names, "update": update}))
    assert [line.split(":")[0] for line in run.run_tasks(slow).wrong] == ["update"]


def test_helpers_count_once_and_comments_do_not() -> None:
    assert count_lines(SOURCE, ["first", "second"]) == {"first": 7, "second": 1}
    assert count_lines(SOURCE, ["second", "first"]) == {"second": 5, "first": 3}


def test_a_module_without_a_task_is_refused() -> None:
    with pytest.raises(ValueError, match="third"):
        count_lines(SOURCE, ["first", "third"])


@pytest.mark.parametrize("name", run.LIBRARIES.values())
def test_every_library_has_every_task(name: str) -> None:
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert min(count_lines(source, list(run.TASKS)).values()) >= 1
    (by_hand,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and "BY_HAND" in ast.unparse(node)
    )
    assert by_hand is not None
    assert set(ast.literal_eval(by_hand)) <= set(run.TASKS)
