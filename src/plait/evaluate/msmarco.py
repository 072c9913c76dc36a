"""Folders as MS MARCO's passage task has them: collection.tsv, queries.SPLIT.tsv, qrels.SPLIT.tsv."""

from __future__ import annotations

from pathlib import Path

from plait.errors import InputError
from plait.evaluate.judged_set import JudgedSet, joined
from plait.evaluate.lines import existing, find
from plait.evaluate.qrels import read_qrels
from plait.evaluate.queries import read_queries


def load_msmarco(path: str | Path, split: str = "dev.small") -> JudgedSet:
    """The queries and judgements of a split, named as in the files: dev.small, dev, train. Files may end in .gz."""
    path = Path(path)
    if not path.is_dir():
        raise InputError(
            f"there is no folder {str(path)!r}; one of MS MARCO has queries.{split}.tsv, qrels.{split}.tsv"
        )
    qrels = read_qrels(existing(path, f"qrels.{split}.tsv", hint=_splits(path)))
    texts = read_queries(existing(path, f"queries.{split}.tsv", hint="both files must have the name of the split"))
    return joined(path.resolve().name, path, split, texts, qrels, corpus=find(path, "collection.tsv"))


def is_msmarco(path: Path) -> bool:
    return any(path.glob("qrels.*.tsv*"))


def _splits(path: Path) -> str:
    names = sorted({file.name.split(".tsv")[0].removeprefix("qrels.") for file in path.glob("qrels.*.tsv*")})
    return f"the splits there are: {', '.join(names)}" if names else "is this a folder of MS MARCO?"
