"""The reference pages that are made from the code: the command line, modes with their parameters, and recipes."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

COMMENT = re.compile(r"^    (?P<name>\w+): .*?(?:\s\s# (?P<comment>.*))?$")


def fields_of(config: type) -> list[tuple[str, str, str]]:
    """(name, default, meaning) of each field of a dataclass; the meaning is the comment on its line."""
    meanings = {}
    for line in inspect.getsource(config).splitlines():
        if found := COMMENT.match(line):
            meanings[found["name"]] = found["comment"] or ""
    return [(field.name, shown(field), meanings.get(field.name, "")) for field in dataclasses.fields(config)]


def shown(field: dataclasses.Field[Any]) -> str:
    """The default as people read it; nothing where there is none."""
    value = field.default
    if value is dataclasses.MISSING:
        value = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
    if value is None or dataclasses.is_dataclass(value):
        return ""
    return f"`{value}`" if not isinstance(value, str) else f"`{value}`" if value else ""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def cli_page() -> str:
    """docs/reference/cli.md: every verb with its help, its examples and its options."""
    from typer.main import get_command

    from plait.cli.app import COMMANDS, app

    group = get_command(app)
    parts = [CLI_HEAD]
    for verb in COMMANDS:
        command = group.commands[verb]  # type: ignore[attr-defined]
        text, _, examples = inspect.cleandoc(command.help or "").partition("Example")
        lines = [line.strip() for line in examples.partition("\n")[2].splitlines() if line.strip()]
        rows = [
            (
                ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts]) + value_of(option),
                " ".join((getattr(option, "help", "") or "").split()),
            )
            for option in command.params
            if option.name != "help"
        ]
        arguments = [row for row in rows if not row[0].startswith("`-")]
        options = [row for row in rows if row[0].startswith("`-")]
        parts.append(f"## plait {verb}\n\n{plain(text)}")
        parts.append("```sh\n" + "\n".join(lines) + "\n```")
        if arguments:
            parts.append(table(["argument", "meaning"], arguments))
        if options:
            parts.append(table(["option", "meaning"], options))
    return "\n\n".join(parts) + "\n"


def value_of(option: Any) -> str:
    """The placeholder after an option that takes a value."""
    if getattr(option, "is_flag", False) or option.param_type_name == "argument":
        return ""
    return f" {option.make_metavar(None)}".rstrip() if option.metavar else f" {option.type.name.upper()}"


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.replace("\b", "").strip().splitlines())


CLI_HEAD = """# Command line

This page is made from the programs' help (`make docs`). `plait VERB --help` prints the same.

Results go to standard output; progress, notes and errors go to standard error. Output that is not a terminal has no
colour and no progress bar.

| exit code | meaning |
|---|---|
| 0 | fine |
| 1 | nothing found, or a check failed |
| 2 | wrong use: an option, a source, a filter or an index that cannot work |
| 130 | stopped by Ctrl-C |"""


PAGES: dict[str, Callable[[], str]] = {"cli.md": cli_page}
