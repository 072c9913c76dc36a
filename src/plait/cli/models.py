"""`plait models`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from plait.cli.options import AsJson
from plait.errors import ConfigError, ModelError


class Action(StrEnum):
    list = "list"
    remove = "remove"
    path = "path"


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that plait can load by its name."""

    name: str
    source: str  # bundled, installed or cached
    kinds: list[str]
    lengths: dict[str, int]
    precisions: list[str]
    bytes: int
    languages: list[str]
    licence: str
    revision: str
    folder: str


def models(
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.list,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The model to remove or find.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models that can be loaded by name; remove or find one.

    Models are bundled with plait, installed as packages, or cached: models of the hub that were named once, and were
    fetched and converted then. The cache is in PLAIT_HOME, or in the cache folder of the user. `remove` deletes a
    cached model, `path` prints the folder of a model, or of the cache.

    \b
    Examples:
      plait models
      plait models --json
      plait models remove BAAI/bge-m3
      plait models path plait-small
    """
    if action is Action.list:
        if name is not None:
            raise ConfigError(f"plait models list takes no name; did you mean: plait models path {name}")
        _print_models(list_models(), as_json=as_json)
    elif action is Action.path:
        print(_path(name))
    else:
        _remove(name)


def list_models() -> list[ListedModel]:
    """All bundled, installed and cached models, cross-encoders too. A damaged one is left out."""
    from plait.encode.hub_models import cached_models
    from plait.encode.load import BUNDLED, installed_models
    from plait.encode.model_card import CARD_NAME

    folders = [(card.parent.name, "bundled", "", card.parent) for card in sorted(BUNDLED.glob(f"*/{CARD_NAME}"))]
    folders += [(name, "installed", "", folder) for name, folder in sorted(installed_models().items())]
    folders += [(model.name, "cached", model.commit, model.folder) for model in cached_models()]
    return [model for entry in folders if (model := _listed(*entry)) is not None]


def _listed(name: str, source: str, revision: str, folder: Path) -> ListedModel | None:
    from plait.encode.model_card import CARD_NAME, CROSS_KIND, parse_card, read_json
    from plait.rerank.cross_card import parse_cross_card

    try:
        raw: Any = read_json(folder / CARD_NAME)
        if isinstance(raw, dict) and raw.get("kind") == CROSS_KIND:
            cross = parse_cross_card(raw, str(folder / CARD_NAME))
            card: Any = cross
            kinds, lengths = ["reranker"], {"pair": cross.pair.length}
        else:
            encoder = parse_card(raw, str(folder / CARD_NAME))
            card = encoder
            kinds = [f"{kind} {size}" for kind, size in encoder.spec.sizes().items()]
            lengths = {"query": encoder.query.length, "document": encoder.document.length}
    except (ModelError, OSError, ValueError, RecursionError):
        return None
    files = [card.tokenizer, *(file for record in card.precisions.values() for file in record.files)]
    return ListedModel(
        name,
        source,
        kinds,
        lengths,
        list(card.precisions),
        sum(file.bytes for file in files),
        list(card.languages),
        card.licence,
        revision,
        str(folder),
    )


def _print_models(models: list[ListedModel], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(model) for model in models]))
        return
    from plait.cli.info import describe_size
    from plait.cli.tables import print_table

    columns = ("model", "from", "gives", "languages", "licence", "precision", "tokens", "size")
    rows = [
        (
            model.name,
            model.source,
            ", ".join(model.kinds),
            _languages(model.languages),
            model.licence,
            ", ".join(model.precisions),
            "/".join(str(length) for length in dict.fromkeys(model.lengths.values())),
            describe_size(model.bytes),
        )
        for model in models
    ]
    print_table(f"{len(models)} models; tokens of a query and a document, or of a pair", columns, rows, n_words=6)


def _languages(languages: list[str]) -> str:
    return ", ".join(languages) if len(languages) <= 4 else f"{len(languages)} languages"


def _path(name: str | None) -> Path:
    from plait.encode.hub_models import models_home

    if name is None:
        return models_home()
    matching = [model for model in list_models() if name in (model.name, f"{model.name}@{model.revision}")]
    if not matching:
        raise ModelError(
            f"there is no model {name!r} here; `plait models` lists the names, and --model NAME fetches one"
        )
    return Path(matching[0].folder)


def _remove(name: str | None) -> None:
    if name is None:
        raise ConfigError("name the model to remove: plait models remove ORG/NAME")
    shipped = [model for model in list_models() if model.name == name and model.source != "cached"]
    if shipped:
        how = "comes with plait" if shipped[0].source == "bundled" else f"is a package: pip uninstall {name}"
        raise ConfigError(f"{name} {how}; only models of the cache are removed here")
    from plait.convert.cache import remove_cached

    n_bytes = sum(model.bytes for model in list_models() if name.partition("@")[0] == model.name)
    remove_cached(name)
    from plait.cli.info import describe_size

    print(f"removed {name} ({describe_size(n_bytes)})")
