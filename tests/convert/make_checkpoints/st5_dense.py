"""The layout that most published dense models have: saved by sentence-transformers before 6, and rewritten as its
versions 2 and 3 wrote it.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.st5_dense

with sentence-transformers 5.3.0, transformers 5.3.0 and torch 2.13.0.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

from convert.make_checkpoints.backbones import HIDDEN, randomise, save_backbone
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder

LENGTH = 48  # less than the tokenizer says: sentence_bert_config.json decides


def use_pickle(folder: Path, file: str = "model.safetensors") -> None:
    torch.save(load_file(folder / file), folder / "pytorch_model.bin")
    (folder / file).unlink()


def rewrite(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps(content, indent=2) + "\n")


def make_recent(name: str) -> None:
    """As version 5 saves it."""
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        save_backbone("bert", Path(scratch), all_texts())
        modules = [Transformer(scratch, max_seq_length=LENGTH), Pooling(HIDDEN, "mean"), Normalize()]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    write_golden(name, folder)


def make_old(name: str) -> None:
    """As version 2 saved it: pickles, no prompts, no similarity, a bare Normalize folder."""
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        save_backbone("mpnet", Path(scratch), all_texts())
        dense = Dense(HIDDEN, 12, activation_function=torch.nn.Tanh())
        randomise(dense, seed=100)
        modules = [Transformer(scratch, max_seq_length=LENGTH), Pooling(HIDDEN, "cls"), dense]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    use_pickle(folder)
    use_pickle(folder / "2_Dense")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": LENGTH, "do_lower_case": False}))
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"__version__": {"sentence_transformers": "2.0.0", "transformers": "4.7.0", "pytorch": "1.9.0"}})
    )
    write_golden(name, folder)


def write_golden(name: str, folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    golden = Golden(name, "sentence-transformers", "sentence-transformers", "cosine", batch=32)
    golden.dense(*[lambda texts, size: model.encode(list(texts), batch_size=size)] * 2)
    golden.write()


if __name__ == "__main__":
    make_recent("st5-bert")
    make_old("st2-mpnet")
