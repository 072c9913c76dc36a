"""The test of words: code and documentation use the field's terms, not a private dialect.

Checked are identifiers, comments and docstrings of all Python files, string literals of the library (messages, help),
C++ sources, and Markdown pages. String literals of tests and benchmarks are data and are not checked.
"""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

# What not to write, and what to write instead.
BANNED_WORDS = {
    "strand": "kind (of embedding); dense, sparse or multi vectors",
    "strands": "kinds (of embeddings); embeddings",
    "grave": "tombstone",
    "graves": "tombstones, deletes",
    "bury": "delete",
    "buried": "deleted, tombstoned",
    "lent": "mixed in (score smoothing)",
    "flood": "centroid MaxSim",
    "floods": "centroid MaxSim",
    "flooded": "scored by centroids",
    "told": "reported, printed, given",
    "blame": "cause; corrupt segment",
    "mend": "repair, correct",
    "mended": "repaired",
    "liking": "preference",
    "anew": "again",
}
# The metaphor of the project's name: in its tagline and in test data, but not in the words of the code.
BANNED_METAPHORS = {"weave": "combine, fuse", "weaves": "combines", "woven": "combined", "weaving": "fusion"}
# As a part of an identifier, such as a setting or a class.
BANNED_IN_IDENTIFIERS = {"apart": "exclude_from_hybrid, split_encoder", "whoever": "the caller"}
# As the whole name of a variable, argument or function these say nothing about what it holds.
VAGUE_NAMES = {"own", "found", "kept", "there", "place", "some", "held"}
# How often such names may still occur; lower a number when you rename some, never raise one.
MAX_VAGUE_NAMES = {
    "benchmarks": 4,
    "models": 5,
    "reproduce": 96,
    "src/plait/storage": 4,
    "tests/benchmarks": 14,
    "tests/faults": 65,
    "tests/formats": 2,
    "tests/kernels": 42,
    "tests/models": 17,
    "tests/reference.py": 18,
    "tests/search": 227,
    "tests/storage": 202,
    "tests/train": 8,
}
BANNED_PHRASES = {
    "who asks": "the caller",
    "what stands": "the text, the value",
    "stands apart": "is excluded",
    "so many": "a number: n rows, as many as ...",
    "who is to blame": "the cause",
    "in this order of liking": "in this order",
}

# (file or folder, word, reason)
ALLOWED = [
    ("src/plait/__init__.py", "woven", "the tagline, and the first example"),
    ("README.md", "woven", "the tagline"),
    ("README.md", "strands", "the meaning of the word plait, as an example text"),
    ("tests/test_words.py", "*", "the list itself"),
]


class Finding(NamedTuple):
    line: int
    word: str
    instead: str


def words_of(identifier: str) -> list[str]:
    """The words of an identifier: MultiVectors, n_rows and HTTPServer are split."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)]


def check_prose(text: str, first_line: int = 1, *, metaphors: bool = True) -> Iterator[Finding]:
    """Banned words and phrases of a comment, a docstring, a message or a page."""
    banned = BANNED_WORDS | (BANNED_METAPHORS if metaphors else {})
    for number, line in enumerate(text.split("\n"), first_line):
        for word in re.findall(r"[a-z]+", line.lower()):
            if word in banned:
                yield Finding(number, word, banned[word])
        for phrase, instead in BANNED_PHRASES.items():
            if phrase in line.lower():
                yield Finding(number, phrase, instead)


def check_identifier(name: str, line: int) -> Iterator[Finding]:
    banned = BANNED_WORDS | BANNED_METAPHORS | BANNED_IN_IDENTIFIERS
    for word in words_of(name):
        if word in banned:
            yield Finding(line, word, banned[word])


def check_python(source: str, *, messages: bool) -> Iterator[Finding]:
    """Findings in identifiers, comments and docstrings; with `messages`, also in other string literals."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.NAME:
            yield from check_identifier(token.string, line)
        elif token.type == tokenize.COMMENT:
            yield from check_prose(token.string, line)
        elif token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            is_docstring = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
            if is_docstring or messages:
                yield from check_prose(token.string, line, metaphors=is_docstring)
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type


def vague_names(source: str) -> list[str]:
    """Identifiers of the source that say nothing about what they hold, with repeats."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in tokens if token.type == tokenize.NAME and token.string in VAGUE_NAMES]


def check_markdown(page: str) -> Iterator[Finding]:
    """Findings in the prose of a page; code blocks are examples, where the metaphor is data."""
    in_code = False
    for number, line in enumerate(page.split("\n"), 1):
        if line.startswith("```"):
            in_code = not in_code
        yield from check_prose(re.sub(r'"[^"]*"|`[^`]*`', "", line), number, metaphors=not in_code)


def check_file(file: str) -> list[Finding]:
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".py"):
        findings = check_python(text, messages=file.startswith("src/"))
    elif file.endswith(".md"):
        findings = check_markdown(text)
    else:
        findings = check_prose(text.replace("_", " "))
    return [finding for finding in findings if not is_allowed(file, finding.word)]


def is_allowed(file: str, word: str) -> bool:
    return any(file.startswith(path) and allowed in ("*", word) for path, allowed, _ in ALLOWED)


def checked_files() -> list[str]:
    patterns = ["*.py", "cpp/*.h", "cpp/*.cc", "cpp/*.inl", "docs/*.md", "README.md", "CONTRIBUTING.md"]
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False)
    return [file for file in listed.stdout.splitlines() if (ROOT / file).is_file()]


@pytest.mark.parametrize("file", checked_files())
def test_no_banned_word_is_used(file: str) -> None:
    shown = [f"{file}:{finding.line}: {finding.word!r}; say: {finding.instead}" for finding in check_file(file)]
    assert shown == []


def folder_of(file: str) -> str:
    """The folder that a limit is for: src/plait/storage, tests/storage, benchmarks."""
    parts = file.split("/")
    depth = {"src": 3, "tests": 2, "docs": 2}.get(parts[0], 1)
    return "/".join(parts[:depth])


def test_vague_names_become_fewer() -> None:
    counts: Counter[str] = Counter()
    for file in checked_files():
        if file.endswith(".py"):
            counts[folder_of(file)] += len(vague_names((ROOT / file).read_text(encoding="utf-8")))
    more = {folder: n for folder, n in counts.items() if n > MAX_VAGUE_NAMES.get(folder, 0)}
    assert more == {}, f"names such as {', '.join(sorted(VAGUE_NAMES))} say nothing; name what the variable holds"


def test_a_vague_name_is_counted_only_as_a_whole_name() -> None:
    assert vague_names("own = found = rows  # kept\n") == ["own", "found"]
    assert vague_names("owner = found_rows = 'some place'\n") == []


def test_the_list_of_exceptions_is_not_longer_than_needed() -> None:
    assert [path for path, _, reason in ALLOWED if not reason or not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("n_graves = 1", ["graves"]),
        ("class StrandShape: ...", ["strand"]),
        ("def f():\n    '''Rows that are\n    buried.'''", ["buried"]),
        ("x = 1  # told by the caller", ["told"]),
        ("# as so many rows", ["so many"]),
        ("raise ValueError(f'the {x} strand')", ["strand"]),
        ("text = 'Vectors are woven.'", []),
        ("def weave_rows(): ...", ["weave"]),
    ],
)
def test_banned_words_are_found_in_python(source: str, words: list[str]) -> None:
    assert [finding.word for finding in check_python(source + "\n", messages=True)] == words


def test_strings_of_tests_are_data() -> None:
    source = "queries = ['what is a strand']  # one query\n"
    assert list(check_python(source, messages=False)) == []


def test_banned_words_are_found_in_pages_with_their_lines() -> None:
    page = 'Title\n\nThe sparse strand.\n```\nplait search "woven"\n```\nWoven together.\n'
    assert [(finding.line, finding.word) for finding in check_markdown(page)] == [(3, "strand"), (7, "woven")]
