"""Globs as in .gitignore: for .gitignore files, and for --include and --exclude.

Built in rather than from a library, so that the same files are read whether or not the extra `files` is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_PATTERNS = 10_000  # of one .gitignore file


@dataclass(frozen=True, slots=True)
class Glob:
    """One line of a .gitignore file."""

    regex: re.Pattern[str]  # matches paths with / below the folder of the file
    is_negated: bool
    folders_only: bool


def parse_globs(lines: Iterable[str]) -> list[Glob]:
    """The globs of some lines; blank lines and remarks are left out."""
    globs = []
    for _, line in zip(range(MAX_PATTERNS), lines, strict=False):
        if glob := _parse(line.rstrip("\r\n")):
            globs.append(glob)
    return globs


def matches(globs: Sequence[Glob], path: str, *, is_folder: bool) -> bool | None:
    """What the last glob that matches a path says: True if it is named, False if it is negated, None without one."""
    for glob in reversed(globs):
        if (is_folder or not glob.folders_only) and glob.regex.fullmatch(path):
            return not glob.is_negated
    return None


def _parse(line: str) -> Glob | None:
    if line.startswith("#"):
        return None
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    is_negated = line.startswith("!")
    line = line[1:] if is_negated else line
    folders_only = line.endswith("/")
    line = line.rstrip("/") if folders_only else line
    if not line:
        return None
    is_anchored = "/" in line
    try:
        regex = re.compile(("" if is_anchored else "(?:.*/)?") + _translated(line.lstrip("/") or "/"))
    except re.error:  # such as a range that is out of order: git ignores the line as well
        return None
    return Glob(regex, is_negated, folders_only)


def _translated(glob: str) -> str:
    """The regular expression of a glob: * and ? stop at /, ** does not."""
    parts: list[str] = []
    position = 0
    while position < len(glob):
        rest = glob[position:]
        if rest.startswith("**/") and (position == 0 or glob[position - 1] == "/"):
            parts.append("(?:.*/)?")
            position += 3
        elif rest == "**" and (position == 0 or glob[position - 1] == "/"):
            parts.append(".+")
            position += 2
        elif rest[0] == "*":
            parts.append("[^/]*")
            position += len(rest) - len(rest.lstrip("*"))
        elif rest[0] == "?":
            parts.append("[^/]")
            position += 1
        elif rest[0] == "[" and (end := _class_end(rest)):
            parts.append(_character_class(rest[1:end]))
            position += end + 1
        else:
            if rest[0] == "\\" and len(rest) > 1:
                position += 1
                rest = rest[1:]
            parts.append(re.escape(rest[0]))
            position += 1
    return "".join(parts)


def _class_end(text: str) -> int:
    """The position of the bracket that ends a class; 0 if there is none. A bracket that comes first is a member."""
    position = 2 if text[1:2] in ("!", "^") else 1
    if text[position : position + 1] == "]":
        position += 1
    while position < len(text) and text[position] != "]":
        position += 2 if text[position] == "\\" else 1
    return position if position < len(text) else 0


def _character_class(members: str) -> str:
    is_negated = members[:1] in ("!", "^")
    members = members[1:] if is_negated else members
    escaped = re.sub(r"\\(.)", lambda match: re.escape(match[1]), members)
    escaped = re.sub(r"(?<!\\)([\[\]&~|^])", r"\\\1", escaped)
    return f"(?!/)[{'^' if is_negated else ''}{escaped}]"
