"""Options of commands that read files: `plait index` and `plait sync`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from plait.readers import ReadOptions

TextField = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The field of the text in JSON, CSV and Parquet; text by default."),
]
IdField = Annotated[
    str | None, typer.Option(metavar="NAME", help="The field of the id in these files; id or _id by default.")
]
TitleField = Annotated[
    str | None, typer.Option(metavar="NAME", help="The field of the title in these files; title by default.")
]
Include = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Read only such files of folders, such as '*.md'; may be repeated."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Leave out such files and folders, such as 'drafts/'; may be repeated."),
]
Hidden = Annotated[bool, typer.Option("--hidden", help="Read files and folders whose names begin with a dot.")]
NoIgnore = Annotated[bool, typer.Option("--no-ignore", help="Read files that .gitignore files name.")]
FollowLinks = Annotated[bool, typer.Option("--follow-links", help="Read what links in folders point to.")]
MaxBytes = Annotated[
    int, typer.Option(min=1, metavar="N", help="Do not read larger files, unless they have a record on each line.")
]
DEFAULT_MAX_BYTES = 100_000_000


def read_options(
    *,
    text_field: str | None,
    id_field: str | None,
    title_field: str | None,
    include: list[str] | None,
    exclude: list[str] | None,
    hidden: bool,
    no_ignore: bool,
    follow_links: bool,
    max_bytes: int,
) -> ReadOptions:
    from plait.readers import ReadOptions

    return ReadOptions(
        text_field=text_field,
        id_field=id_field,
        title_field=title_field,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        hidden=hidden,
        gitignore=not no_ignore,
        follow_links=follow_links,
        max_bytes=max_bytes,
    )
