"""Source code: one document, the text of the file; classes and functions are headings.

Python's own parser reads Python. Other languages are parsed by tree-sitter where its grammar is installed; otherwise
lines that look like definitions are taken. A file that no parser accepts is still read, as text.
"""

from __future__ import annotations

import ast
import importlib
import re
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import Any

from plait.readers.given import Given, one_document
from plait.records import LINE, Document, Section

# Suffix to grammar module and the name of its function.
GRAMMARS = {
    ".c": ("tree_sitter_c", "language"),
    ".h": ("tree_sitter_cpp", "language"),
    ".cc": ("tree_sitter_cpp", "language"),
    ".cpp": ("tree_sitter_cpp", "language"),
    ".cxx": ("tree_sitter_cpp", "language"),
    ".hpp": ("tree_sitter_cpp", "language"),
    ".hh": ("tree_sitter_cpp", "language"),
    ".js": ("tree_sitter_javascript", "language"),
    ".mjs": ("tree_sitter_javascript", "language"),
    ".jsx": ("tree_sitter_javascript", "language"),
    ".ts": ("tree_sitter_typescript", "language_typescript"),
    ".tsx": ("tree_sitter_typescript", "language_tsx"),
    ".java": ("tree_sitter_java", "language"),
    ".go": ("tree_sitter_go", "language"),
    ".rs": ("tree_sitter_rust", "language"),
}
_OTHERS = (
    ".sh .bash .zsh .pl .pm .rb .php .lua .swift .kt .scala .cs .m .r .jl .hs .ml .ex .exs .erl .clj .dart .groovy "
    ".vim .el .lisp .scm .sql .cmake .tcl .awk .ps1 .pyx .pxd .cu .cuh .inl .proto .tf .gradle .zig .nim .f90 .f "
    ".asm .s .css "
)
OTHER_SUFFIXES = tuple(_OTHERS.split())
MAX_PARSED = 2_000_000  # characters; longer files are machine-made, and parsing takes long
MAX_DEPTH = 200

_DEFINITIONS = {
    "function_definition", "function_declaration", "function_item", "method_declaration", "method_definition",
    "constructor_declaration", "class_declaration", "class_specifier", "struct_specifier", "union_specifier",
    "enum_specifier", "struct_item", "enum_item", "trait_item", "impl_item", "mod_item", "macro_definition",
    "interface_declaration", "enum_declaration", "record_declaration", "type_spec", "type_alias_declaration",
    "namespace_definition", "abstract_class_declaration", "generator_function_declaration", "preproc_function_def",
}  # fmt: skip
_LOOKS_LIKE = re.compile(
    r"(?:(?:export|public|private|protected|static|abstract|async|pub|final|open|override|inline|local|default)\s+)*"
    r"(?:function|func|fn|fun|def|sub|class|interface|struct|enum|trait|impl|module|package|defmodule|proc|message"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:TABLE|VIEW|FUNCTION|PROCEDURE|TRIGGER))\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    r"([\w:.$#'\"`?!-]+)",
    re.IGNORECASE,
)
_SHELL_FUNCTION = re.compile(r"([\w-]+)\s*\(\)\s*\{?\s*$")


def read_python(given: Given) -> Iterator[Document]:
    """The title is the first line of the module's docstring."""
    text = given.read_text()
    title, sections = python_sections(text)
    yield from _code_document(given, text, title, sections)


def read_code(given: Given, suffix: str) -> Iterator[Document]:
    text = given.read_text()
    parser = _parser(suffix) if len(text) <= MAX_PARSED else None
    sections = tree_sections(parser, text) if parser is not None else line_sections(text)
    yield from _code_document(given, text, "", sections)


def _code_document(given: Given, text: str, title: str, sections: list[Section]) -> Iterator[Document]:
    yield from one_document(given, text, title, {}, (Section(0, f"{LINE}1"), *sections))


def python_sections(text: str) -> tuple[str, list[Section]]:
    """The title of a module, and its classes and functions; by their lines if it is not valid Python 3."""
    try:
        if len(text) > MAX_PARSED:
            return "", line_sections(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes in strings of the file
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", line_sections(text)
    starts = _line_starts(text)
    sections: list[Section] = []

    def visit(body: list[ast.stmt], level: int, path: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                kind = "class" if isinstance(node, ast.ClassDef) else "def"
                sections.append(Section(starts[line - 1], "", level, f"{kind} {node.name}"))
                if isinstance(node, ast.ClassDef) and level < MAX_DEPTH:
                    visit(node.body, level + 1, f"{path}{node.name}.")
            elif isinstance(node, ast.If | ast.Try) and level == 1:
                visit(node.body, level, path)

    visit(tree.body, 1, "")
    docstring = ast.get_docstring(tree)
    title = docstring.strip().split("\n", 1)[0].strip() if docstring else ""
    return title, sorted(sections, key=lambda section: section.start)


@cache
def _parser(suffix: str) -> Any:
    """A parser for the language of a suffix; None if its grammar or tree-sitter is not installed."""
    if suffix not in GRAMMARS:
        return None
    module, function = GRAMMARS[suffix]
    try:
        import tree_sitter

        language = getattr(importlib.import_module(module), function)()
        return tree_sitter.Parser(tree_sitter.Language(language))
    except (ImportError, AttributeError, TypeError, ValueError):  # absent, or of versions that do not fit each other
        return None


def tree_sections(parser: Any, text: str) -> list[Section]:
    """The definitions of a file, by tree-sitter."""
    starts = _line_starts(text)
    sections: list[Section] = []
    waiting = [(parser.parse(text.encode()).root_node, 1, 0)]
    while waiting:
        node, level, depth = waiting.pop()
        name = _definition(node) if node.type in _DEFINITIONS else ""
        if name:
            sections.append(Section(starts[node.start_point[0]], "", level, name))
        if depth < MAX_DEPTH and (not name or not _is_function(node.type)):
            inner = level + 1 if name else level
            waiting += [(child, inner, depth + 1) for child in reversed(node.named_children)]
    return sorted(set(sections), key=lambda section: (section.start, section.level))


def _is_function(kind: str) -> bool:
    return "function" in kind or "method" in kind or "macro" in kind or "constructor" in kind


def _definition(node: Any) -> str:
    """The name of a definition with a body; empty for a mere mention such as `struct point p`."""
    body = node.child_by_field_name("body")
    if body is None and node.type not in (
        "type_spec",
        "preproc_function_def",
        "macro_definition",
        "type_alias_declaration",
    ):
        return ""
    name = node.child_by_field_name("name") or node.child_by_field_name("type")
    declarator = node.child_by_field_name("declarator")
    for _ in range(8):  # int *f(int x): the name is inside pointer and function declarators
        if declarator is None:
            break
        name = declarator
        declarator = declarator.child_by_field_name("declarator")
    if name is None:
        return ""
    kind = node.type.split("_")[0].replace("constructor", "function").replace("preproc", "macro")
    return f"{kind} {' '.join(name.text.decode(errors='replace').split())[:100]}"


def line_sections(text: str) -> list[Section]:
    """Lines that look like definitions; indented ones are one level below."""
    sections = []
    for line, start in zip(text.split("\n"), _line_starts(text), strict=False):
        stripped = line.strip()
        match = _LOOKS_LIKE.match(stripped) or (_SHELL_FUNCTION.match(line) if line[:1].isalpha() else None)
        if match and len(line) < 300:
            sections.append(Section(start, "", 2 if line[:1].isspace() else 1, match.group().rstrip(" {(")[:100]))
    return sections


def _line_starts(text: str) -> list[int]:
    return list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
