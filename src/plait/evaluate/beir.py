"""BEIR folders: a corpus, queries, and for each split the judgements of which documents answer which query."""

from __future__ import annotations

from pathlib import Path

from plait.errors import InputError
from plait.evaluate.judged_set import JudgedSet, joined
from plait.evaluate.lines import existing, find, lines_of
from plait.evaluate.qrels import judgements
from plait.evaluate.queries import read_queries


def load_beir(path: str | Path, split: str = "test") -> JudgedSet:
    """The queries and judgements of a split; files may end in .gz. InputError says what is missing."""
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"there is no folder {str(path)!r}; a BEIR folder has queries.jsonl and qrels/{split}.tsv")
    file = existing(path / "qrels", f"{split}.tsv", hint=_splits(path))
    qrels = judgements(lines_of(file), file, n_columns=3)
    texts = read_queries(existing(path, "queries.jsonl", hint="is this a BEIR folder?"))
    return joined(path.resolve().name, path, split, texts, qrels, corpus=find(path, "corpus.jsonl"))


def _splits(path: Path) -> str:
    names = sorted({file.name.split(".")[0] for file in path.glob("qrels/*.tsv*")})
    return f"the splits there are: {', '.join(names)}" if names else "is this a BEIR folder?"
