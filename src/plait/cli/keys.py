"""`plait keys`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import say
from plait.cli.options import AsJson
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.serve.keys import Key, KeyFile


class Action(StrEnum):
    add = "add"
    list = "list"
    remove = "remove"


class Scope(StrEnum):
    read = "read"
    write = "write"
    admin = "admin"
    metrics = "metrics"


def keys(
    action: Annotated[Action, typer.Argument(help="What to do.", show_default=False)],
    file: Annotated[Path, typer.Argument(metavar="KEYS", help="The file of keys.", show_default=False)],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The key to add or remove.", show_default=False)
    ] = None,
    scope: Annotated[
        list[Scope] | None, typer.Option(help="What its holder may do; may be repeated. [default: read]")
    ] = None,
    index: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="An index that it may use; may be repeated.")
    ] = None,
    filter: Annotated[
        str | None, typer.Option(help="The documents that it sees, such as 'tenant = \"a\"'; for scope read alone.")
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, max=36_500, help="Days until it expires.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add, list or remove the API keys of `plait serve`.

    `add` prints the new key, which is stored nowhere: the file has its hash. A running server sees changes within a
    second. The scope write includes read, admin includes all.

    \b
    Examples:
      plait keys add keys.json laptop --scope write
      plait keys add keys.json shop-a --index products --filter 'shop = "a"'
      plait keys list keys.json
      plait keys remove keys.json laptop
    """
    from plait.serve.keys import make_key, new_key_file, read_keys, write_keys

    if action is Action.list:
        if name is not None:
            raise ConfigError("plait keys list takes no name; leave it out")
        _print(read_keys(file), as_json=as_json)
        return
    if name is None:
        raise ConfigError(f"which key? plait keys {action} {file} NAME")
    if action is Action.remove:
        write_keys(file, read_keys(file).without(name))
        return
    expires = None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    scopes = [str(one) for one in scope or [Scope.read]]
    key, entry = make_key(name, scopes, indexes=index, filter=filter, expires=expires)
    present = read_keys(file) if file.exists() else new_key_file()
    write_keys(file, present.with_key(entry))
    print(key)
    say("plait: this is the only time that the key is shown; send it as Authorization: Bearer KEY")


def _print(file: KeyFile, *, as_json: bool) -> None:
    for key in file.keys.values():
        print(json.dumps(_fields(key)) if as_json else _line(key))


def _fields(key: Key) -> dict[str, object]:
    """What may be shown: all but the hash."""
    shown = ("id", "name", "scopes", "indexes", "filter", "created", "expires")
    return {name: getattr(key, name) for name in shown}


def _line(key: Key) -> str:
    indexes = "all indexes" if key.indexes is None else ", ".join(key.indexes)
    parts = [key.id, key.name, ", ".join(key.scopes), indexes]
    parts += [] if key.filter is None else [f"where {key.filter}"]
    parts += [] if key.expires is None else [f"until {key.expires}"]
    return "  ".join(parts)
