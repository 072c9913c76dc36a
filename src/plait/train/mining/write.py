"""Mined lists on disk: JSON lines in the form of FlagEmbedding, with ids; every reader of that form reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from plait.train.data.example import Example


def write_lists(path: Path, examples: Iterable[Example]) -> int:
    """Writes all examples, or nothing; gives their number."""
    draft, n_written = path.with_name(path.name + ".new"), 0
    with draft.open("w", encoding="utf-8") as file:
        for example in examples:
            file.write(json.dumps(fields_of(example), ensure_ascii=False) + "\n")
            n_written += 1
    draft.replace(path)
    return n_written


def fields_of(example: Example) -> dict[str, Any]:
    """One line of a file of lists."""
    fields: dict[str, Any] = {
        "query": example.query,
        "pos": [passage.text for passage in example.positives],
        "neg": [passage.text for passage in example.negatives],
        "pos_id": [passage.id for passage in example.positives],
        "neg_id": [passage.id for passage in example.negatives],
    }
    if example.positive_scores is not None and example.negative_scores is not None:
        fields |= {"pos_scores": list(example.positive_scores), "neg_scores": list(example.negative_scores)}
    return fields
