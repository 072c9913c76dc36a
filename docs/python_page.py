"""docs/reference/python.md: every public name with its types and its docstring. Indented code in a docstring is an
example; tests/docs/test_python_reference.py runs all of them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from typing import Any

from reference_pages import COMMENT, shown, table

import plait

# The names in the order in which a reader needs them; names of a kind that are not listed come last in their section.
SECTIONS: dict[str, list[str]] = {
    "Open": ["open", "Index", "AsyncIndex", "IndexPool", "sync"],
    "Documents and hits": ["Document", "Span", "Hit", "Passage", "Group", "Facets", "FacetCount", "Explanation"],
    "Options": ["SearchRequest", "Chunking", "Pooling", "Projection", "EmbeddingSpec", "Deadline", "Trace"],
    "Vectors and models": ["Embeddings", "MultiVectors", "SparseVectors", "Encoder", "load_model", "maxsim"],
}
HEAD = """# Python

This page is made from the code (`make docs`); a test runs its examples, which begin with these three documents:

```python
import plait

index = plait.open("my-index", create=True)
documents = [
    {"id": "intro", "text": "Vectors are combined: each is mixed with its neighbours.", "year": 2024, "lang": "en"},
    {"id": "loom", "text": "A loom crosses warp and weft.", "year": 2019, "lang": "en"},
    {"id": "webstuhl", "text": "Ein Webstuhl kreuzt Kette und Schuss.", "year": 2021, "lang": "de"},
]
index.add(documents)
```

Parameters of modes (`DenseParams`, `HybridParams`, ...) are in [modes and parameters](modes.md)."""


def python_page() -> str:
    names = {name for name in plait.__all__ if not name.startswith("_") and not name.endswith("Params")}
    classes = {name for name in names if inspect.isclass(getattr(plait, name))}
    errors = {name for name in classes if issubclass(getattr(plait, name), Exception)}
    listed = {name for section in SECTIONS.values() for name in section}
    sections = {**SECTIONS, "Others": sorted(names - listed - errors), "Errors and warnings": []}
    parts = [HEAD]
    for heading, section in sections.items():
        parts.append(f"## {heading}")
        parts += [described(name, getattr(plait, name)) for name in section if name in names]
    rows = [(f"`{name}`", bases(getattr(plait, name)), one_line(getattr(plait, name))) for name in sorted(errors)]
    return "\n\n".join([*parts, table(["name", "is a", "meaning"], rows)]) + "\n"


def described(name: str, value: Any) -> str:
    """A class with its fields and methods, or a function."""
    if not inspect.isclass(value):
        return "\n\n".join([f"### plait.{name}", signature(f"plait.{name}", value), documentation(value)])
    parts = [f"### plait.{name}"]
    is_record = dataclasses.is_dataclass(value) or hasattr(value, "_fields")
    if "__init__" in vars(value) and not is_record and name != "Index":
        parts.append(signature(f"plait.{name}", value.__init__))
    parts.append(documentation(value))
    if is_record:
        parts.append(table(["field", "type", "default", "meaning"], fields(value)))
    parts += [member(f"{name}.{key}", one) for key, one in vars(value).items() if is_documented(key, one)]
    return "\n\n".join(parts)


def is_documented(key: str, member: Any) -> bool:
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    public = not key.startswith("_") or key in ("__contains__", "__iter__", "__len__", "__getitem__")
    return public and isinstance(member, property | type(is_documented)) and bool(inspect.getdoc(member))


def member(name: str, value: Any) -> str:
    """A method or a property of a class."""
    text = documentation(value)
    if isinstance(value, property):
        kind = inspect.signature(value.fget).return_annotation if value.fget is not None else ""
        return f"#### {name}\n\n```text\n{name}: {kind}\n```\n\n{text}"
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    return f"#### {name}\n\n{signature(name, value)}\n\n{text}"


def signature(name: str, function: Any) -> str:
    """The call with its types, on one line or one argument a line."""
    read = inspect.signature(function)
    arguments = [one for one in read.parameters.values() if one.name not in ("self", "cls")]
    words: list[str] = []
    star = False
    for one in arguments:
        if one.kind is one.KEYWORD_ONLY and not star:
            star = True
            words.append("*")
        star = star or one.kind is one.VAR_POSITIONAL
        words.append(str(one).replace("'", ""))
    gives = "" if read.return_annotation is inspect.Signature.empty else f" -> {read.return_annotation}"
    line = f"{name}({', '.join(words)}){gives}"
    if len(line) > 100:
        line = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){gives}"
    return f"```text\n{line}\n```"


def documentation(value: Any) -> str:
    """The docstring; indented code becomes a block of Python."""
    text = inspect.getdoc(value) or ""
    parts = []
    for paragraph in re.split(r"\n\n(?=\S)", text):
        words, _, code = paragraph.partition("\n\n    ")
        parts.append(words if not code else f"{words}\n\n```python\n{textwrap.dedent('    ' + code)}\n```")
    return "\n\n".join(parts)


def fields(record: type) -> list[tuple[str, str, str, str]]:
    """(name, type, default, meaning) of each field of a dataclass or a named tuple."""
    meanings = meanings_of(record)
    if dataclasses.is_dataclass(record):
        return [
            (f"`{one.name}`", f"`{one.type}`", shown(one), meanings[one.name]) for one in dataclasses.fields(record)
        ]
    kinds, defaults = inspect.get_annotations(record), getattr(record, "_field_defaults", {})
    return [
        (f"`{name}`", f"`{kinds[name]}`", f"`{defaults[name]}`" if defaults.get(name) else "", meanings[name])
        for name in getattr(record, "_fields", ())
    ]


def meanings_of(record: type) -> dict[str, str]:
    """The comment of each field: on its line, or on the lines above it."""
    meanings: dict[str, str] = {}
    above = ""
    for line in inspect.getsource(record).splitlines():
        comment = re.fullmatch(r"    # (.*)", line)
        if comment:
            above = f"{above} {comment[1]}".strip()
            continue
        if match := COMMENT.match(line):
            meanings.setdefault(match["name"], match["comment"] or above)
        above = ""
    return {name: meanings.get(name, "") for name in inspect.get_annotations(record)}


def bases(error: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in error.__bases__)


def one_line(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split())
