"""BEIR folders as training data: the judged documents of each query are its positives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plait.errors import InputError
from plait.evaluate.beir import load_beir
from plait.train.data.example import Example, Passage
from plait.train.data.nway import found
from plait.train.data.texts import store_of


def read_beir(folder: Path, split: str = "train") -> Iterator[Example]:
    """A query of the split with the documents judged above 0; those judged 0 are negatives. Queries that have no
    positive are passed over; an id without a text is an error."""
    beir = load_beir(folder, split)
    if beir.corpus is None:
        raise InputError(f"there is no {folder / 'corpus.jsonl'} (nor corpus.jsonl.gz); training needs the texts")
    with store_of(beir.corpus) as corpus:
        for query, text in beir.queries.items():
            judged = beir.qrels[query]
            positives, negatives = (
                [id for id, relevance in judged.items() if (relevance > 0) == relevant] for relevant in (True, False)
            )
            if not positives:
                continue
            try:
                texts = found("document", corpus, positives + negatives)
            except InputError as error:
                raise InputError(f"{beir.corpus}: {error}, though query {query!r} is judged on it") from None
            passages = [Passage(text, id) for id, text in zip(positives + negatives, texts, strict=True)]
            yield Example(text, tuple(passages[: len(positives)]), tuple(passages[len(positives) :]))
