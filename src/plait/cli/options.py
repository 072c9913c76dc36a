"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.codec.pooling import Pooling
    from plait.codec.projection import Projection
    from plait.encode.chunking import Chunking


class ChunkBy(StrEnum):
    pause = "pause"
    sentence = "sentence"
    paragraph = "paragraph"
    heading = "heading"
    tokens = "tokens"


class PoolingMethod(StrEnum):
    hierarchical = "hierarchical"
    sequential = "sequential"


IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The index folder.", show_default=False)]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FOLDER",
        help="The model: a folder, a name of `plait models`, or ORG/NAME of the hub, fetched and converted once. By "
        "default the one that the index names; a folder must be given each time.",
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to use; all cores by default.", show_default=False)]
Wait = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for another writer; 0 does not wait.")
]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Stop with an error after this number of seconds.", show_default=False),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "-o", "--param", metavar="NAME=VALUE", help="A parameter of the mode, such as n_probe=16; may be repeated."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
PoolFixed = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Store exactly N token vectors for every passage; the index remembers it.", show_default=False
    ),
]
PoolFactor = Annotated[
    int | None,
    typer.Option(metavar="N", help="Store one token vector for every N; the index remembers it.", show_default=False),
]
PoolMethod = Annotated[
    PoolingMethod | None,
    typer.Option(help="Pool vectors that are similar (hierarchical, the default) or consecutive.", show_default=False),
]
Dims = Annotated[
    str | None,
    typer.Option(
        metavar="N|off",
        help="Project token vectors to N dimensions, fitted by the first plait compact with enough vectors; the index "
        "remembers it.",
        show_default=False,
    ),
]
ChunkSize = Annotated[
    int | None,
    typer.Option(metavar="N", help="Tokens of a passage, at most; the index remembers it.", show_default=False),
]
ChunkOverlap = Annotated[
    int | None,
    typer.Option(metavar="N", help="Tokens that a passage repeats of the one before.", show_default=False),
]
ChunkEnd = Annotated[
    ChunkBy | None, typer.Option("--chunk-by", help="Where passages end; by default at pauses.", show_default=False)
]
ChunkLate = Annotated[
    bool, typer.Option("--chunk-late", help="Encode neighbouring passages together, for their context.")
]
Language = Annotated[
    str | None,
    typer.Option(
        metavar="CODE", help="Stem the full text of a new index for a language: de, fr, ru, ...", show_default=False
    ),
]


def pooling_from(fixed: int | None, factor: int | None, method: PoolingMethod | None) -> Pooling | None:
    """The pooling that the options ask for; None if none was given."""
    if fixed is None and factor is None:
        if method is not None:
            raise ConfigError("--pool-method needs --pool-fixed or --pool-factor: how many vectors to store")
        return None
    from plait.codec.pooling import DEFAULT_METHOD, Pooling

    return Pooling(fixed=fixed, factor=factor, method=DEFAULT_METHOD if method is None else method.value)


def projection_from(dims: str | None) -> Projection | Literal[False] | None:
    """The projection that --dims asks for; False for "off", None if it was not given."""
    if dims is None:
        return None
    if dims == "off":
        return False
    if not dims.isdecimal():
        raise ConfigError(f"--dims is {dims!r}; give a number of dimensions, such as 128, or off")
    from plait.codec.projection import Projection

    return Projection(dims=int(dims))


def chunking_from(size: int | None, overlap: int | None, by: ChunkBy | None, late: bool) -> Chunking | None:
    """The chunking that the options ask for; None if none was given."""
    if size is None and overlap is None and by is None and not late:
        return None
    from plait.encode.chunking import DEFAULT_BY, Chunking

    return Chunking(size=size, overlap=overlap, by=DEFAULT_BY if by is None else by.value, late=late)


def params_from(given: list[str] | None) -> dict[str, object] | None:
    """NAME=VALUE options as a mapping; None if there are none. The mode checks names and values."""
    params: dict[str, object] = {}
    for text in given or []:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ConfigError(f"--param {text!r} is not a parameter; write NAME=VALUE, for example n_probe=16")
        if name in params:
            raise ConfigError(f"{name} is given twice, as {params[name]} and as {value}; choose one")
        params[name] = value
    return params or None
