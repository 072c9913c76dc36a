"""Lines of code of the tasks of a module: the bodies of its functions, and the helpers that they use.

A line counts if it has code: blank lines, comments, docstrings and the `def` line of a task do not. A helper (a
function or class whose name begins with an underscore) counts whole, for the first task that uses it. Imports,
constants and the hook that brings the model do not count.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Sequence

Definition = ast.FunctionDef | ast.ClassDef
_WITHOUT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def count_lines(source: str, tasks: Sequence[str]) -> dict[str, int]:
    """Lines by task, for the tasks in this order."""
    tree = ast.parse(source)
    definitions = {node.name: node for node in tree.body if isinstance(node, Definition)}
    if missing := [task for task in tasks if task not in definitions]:
        raise ValueError(f"no function for {', '.join(missing)}")
    code = _lines_of_code(source) - _docstring_lines(tree)
    counted: set[str] = set()
    lines = {}
    for task in tasks:
        helpers = _helpers(definitions[task], definitions) - counted
        counted |= helpers
        body = definitions[task].body
        spans = [(body[0].lineno, body[-1].end_lineno or 0)]
        spans += [(definitions[name].lineno, definitions[name].end_lineno or 0) for name in helpers]
        lines[task] = sum(number in code for first, last in spans for number in range(first, last + 1))
    return lines


def _helpers(node: ast.AST, definitions: dict[str, Definition]) -> set[str]:
    """The helpers that a definition uses, directly or through another helper."""
    helpers_read: set[str] = set()
    waiting: list[ast.AST] = [node]
    while waiting:
        for name in _names(waiting.pop()):
            if name.startswith("_") and name in definitions and name not in helpers_read:
                helpers_read.add(name)
                waiting.append(definitions[name])
    return helpers_read


def _names(node: ast.AST) -> Iterable[str]:
    return (child.id for child in ast.walk(node) if isinstance(child, ast.Name))


def _lines_of_code(source: str) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        number
        for token in tokens
        if token.type not in _WITHOUT_CODE
        for number in range(token.start[0], token.end[0] + 1)
    }


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines
