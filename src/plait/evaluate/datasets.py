"""Sets by what they are called: a BEIR folder, a folder of MS MARCO, or irds:NAME."""

from __future__ import annotations

from pathlib import Path

from plait.evaluate.beir import load_beir
from plait.evaluate.irds import PREFIX, load_irds
from plait.evaluate.judged_set import JudgedSet
from plait.evaluate.msmarco import is_msmarco, load_msmarco


def load_set(source: str | Path, split: str = "test") -> JudgedSet:
    """The set at `source`. The id of an ir_datasets set names its split, and `split` is not looked at."""
    if str(source).startswith(PREFIX):
        return load_irds(str(source))
    path = Path(source)
    return load_msmarco(path, split) if is_msmarco(path) else load_beir(path, split)


def is_set(source: str | Path) -> bool:
    """Whether this names a set, rather than a file of judgements."""
    return str(source).startswith(PREFIX) or Path(source).is_dir()
