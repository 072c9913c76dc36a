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
        if match := COMMENT.match(line):
            meanings[match["name"]] = match["comment"] or ""
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

    from plait.cli.app import all_verbs, app

    parts = [CLI_HEAD]
    for verb in all_verbs():
        command: Any = get_command(app)
        for word in verb.split():
            command = command.commands[word]
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


def modes_page() -> str:
    """docs/reference/modes.md: every mode of the registry with its parameters."""
    import plait.searcher  # declares the modes that ask a cross-encoder
    from plait.search.modes import all_modes

    assert plait.searcher
    modes = all_modes()
    rows = [(f"`{mode.name}`", mode.summary, ", ".join(mode.needs), params_link(mode.params)) for mode in modes]
    parts = [MODES_HEAD, table(["mode", "what it does", "needs", "parameters"], rows)]
    for params in dict.fromkeys(mode.params for mode in modes if dataclasses.fields(mode.params)):
        users = ", ".join(f"`{mode.name}`" for mode in modes if mode.params is params)
        text = (inspect.getdoc(params) or "").strip()
        parts.append(f"## {params.__name__}\n\nFor {users}. {text}")
        parts.append(table(["parameter", "default", "meaning"], [(f"`{n}`", d, m) for n, d, m in fields_of(params)]))
    return "\n\n".join(parts) + "\n"


def params_link(params: type) -> str:
    return f"[{params.__name__}](#{params.__name__.lower()})" if dataclasses.fields(params) else ""


MODES_HEAD = """# Modes and parameters

This page is made from the registry of modes (`make docs`). A mode is a named way to search; its parameters are a frozen
dataclass, checked when it is made.

```sh
plait search my-index "how are vectors combined" --mode plaid --param n_probe=4 --param t_cs=0.4
```

<!-- not run: an example of the call -->
```python
index.search("how are vectors combined", mode="plaid", params=plait.PlaidParams(n_probe=4, t_cs=0.4))
```

A parameter without a default is settled when the search is planned: first what the caller set, then what `plait tune`
saved in the index, then a value by the size of the index."""


def recipes_page() -> str:
    """docs/reference/recipes.md: every section and key of a training recipe."""
    from plait.train import loss as losses
    from plait.train import model_config
    from plait.train.batching.plan import BatchingConfig
    from plait.train.build import InitConfig
    from plait.train.cross.config import CrossConfig, CrossEntropyConfig
    from plait.train.data.sources import SourceConfig
    from plait.train.mining.config import MiningConfig
    from plait.train.optimiser import OptimiserConfig
    from plait.train.recipe import EvaluationConfig, RunConfig

    sections: list[tuple[str, type]] = [
        ("[model]", model_config.ModelConfig),
        ("[model] of an encoder in training", InitConfig),
        ("[model.dense]", model_config.DenseHeadConfig),
        ("[model.sparse]", model_config.SparseHeadConfig),
        ("[model.multi]", model_config.MultiHeadConfig),
        ("[model.multi.fixed]", model_config.FixedConfig),
        ("[[model.dense.layers]] and [[model.multi.layers]]", model_config.LayerConfig),
        ("[model.token_adapter]", model_config.TokenAdapterConfig),
        ("[model] of a cross-encoder", CrossConfig),
        *((f"[loss] {name}", config) for name, config in losses.CONFIGS.items()),
        ("[loss] of a cross-encoder", CrossEntropyConfig),
        ("[[data]]", SourceConfig),
        ("[mining]", MiningConfig),
        ("[batching]", BatchingConfig),
        ("[optimiser]", OptimiserConfig),
        ("[evaluation]", EvaluationConfig),
        ("[run]", RunConfig),
    ]
    parts = [RECIPES_HEAD]
    for name, config in sections:
        rows = [(f"`{key}`", default, meaning) for key, default, meaning in fields_of(config)]
        parts.append(f"## {name}\n\n{inspect.getdoc(config) or ''}\n\n" + table(["key", "default", "meaning"], rows))
    return "\n\n".join(parts) + "\n"


RECIPES_HEAD = """# Recipes

This page is made from the code (`make docs`). A recipe is a TOML file with the sections below. An unknown section or
key is an error that names the line and the likely name; it comes before anything is loaded. Paths are relative to the
folder where the command runs. `recipes/` has a miniature of each system."""


def python_page() -> str:
    """docs/reference/python.md: every public name."""
    from python_page import python_page as made

    return made()


def http_page() -> str:
    """docs/reference/http.md: every route of the server."""
    from http_page import http_page as made

    return made()


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "http.md": http_page,
    "modes.md": modes_page,
    "python.md": python_page,
    "recipes.md": recipes_page,
}
