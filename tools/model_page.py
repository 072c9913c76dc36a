"""The model card for people: README.md of a model folder, from its plait.json and the numbers that were measured."""

from __future__ import annotations

from typing import Any

PAGE = """\
# {name}

The model that plait searches with when no other is named. English; one pass gives two strands:

- `dense`: {dense} dimensions, the mean of the token states;
- `multi`: a row of {multi} dimensions for each token, scored by MaxSim; documents leave out punctuation.

| | |
|---|---|
| Source | {source} |
| Licence | {licence} |
| Attribution | {attribution} |
| Languages | {languages} |
| Reads | {length} tokens; longer texts in passages that overlap by {overlap} |
| Size | {size:.1f} MB (int8) |
| Made by | `{made}` |

## How it was made

The weights are those of gte-small, not trained further. The graph is written by hand for onnxruntime. Weights have
7 bits and a scale for each column, word vectors 8 bits and a scale for each word. Activations are rounded to 8 bits
with a scale for each token, so the vectors of a text do not depend on the texts encoded beside it, and no sum
overflows on processors without VNNI.

{fitted}

## Numbers

{numbers}
"""


def model_page(card: dict[str, Any], *, fitted: str, numbers: dict[str, Any] | None) -> str:
    """The page; without numbers it says that none were measured."""
    return PAGE.format(
        name=card["name"],
        dense=card["embeddings"]["dense"]["dim"],
        multi=card["embeddings"]["multi"]["dim"],
        source=card["source"],
        licence=card["licence"],
        attribution=card["attribution"],
        languages=", ".join(card["languages"]),
        length=card["document"]["length"],
        overlap=card["document"]["overlap"],
        size=card["precisions"]["int8"]["bytes"] / 1e6,
        made=card["made"],
        fitted=fitted,
        numbers=_tables(numbers) if numbers else "None were measured for this build.",
    )


def _tables(numbers: dict[str, Any]) -> str:
    blocks = []
    for table in numbers["tables"]:
        head = ["| " + " | ".join(table["columns"]) + " |", "|" + "---|" * len(table["columns"])]
        rows = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in table["rows"]]
        blocks += [table["title"], "\n".join(head + rows)]
    return "\n\n".join([*blocks, *numbers["notes"]])
