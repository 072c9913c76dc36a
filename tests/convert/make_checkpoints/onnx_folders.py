"""Folders with an ONNX graph instead of weights: LightOn's ColBERT and fastembed's dense models.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.onnx_folders

with pylate 1.6.0, pylate-onnx-export 0.1.0, fastembed 0.9.1, onnx 1.23.2 and torch 2.13.0.

`onnx-colbert-2025` is what LightOn's exporter 0.1 writes: the settings are in config_sentence_transformers.json, and
queries are not expanded. The folders that it published later have them in onnx_config.json, as `onnx-colbert` has.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from colbert_export.export import export_model
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from pylate import models
from transformers import AutoModel, AutoTokenizer

from convert.make_checkpoints.backbones import HIDDEN, save_backbone
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder
from convert.make_checkpoints.pylate import CASES as PYLATE_CASES
from convert.make_checkpoints.pylate import build

OLD_SETTINGS, NEW_SETTINGS = "config_sentence_transformers.json", "onnx_config.json"
# The exporter that wrote the published graphs; the newer one of torch puts the weights into a second file.
old_exporter = partial(torch.onnx.export, dynamo=False)


def make_colbert(name: str, *, is_new: bool) -> None:
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        backbone, trained = Path(scratch) / "backbone", Path(scratch) / "trained"
        build(PYLATE_CASES["pylate-bert"], save_backbone("bert", backbone, all_texts())).save(str(trained))
        with mock.patch("torch.onnx.export", old_exporter):
            export_model(str(trained), folder, verbose=False)
        model = models.ColBERT(str(trained), device="cpu", do_query_expansion=is_new)
    settings = json.loads((folder / OLD_SETTINGS).read_text())
    settings["model_name"] = name
    if is_new:
        settings |= {"do_query_expansion": True, "do_lower_case": True}
        (folder / OLD_SETTINGS).unlink()
    (folder / (NEW_SETTINGS if is_new else OLD_SETTINGS)).write_text(json.dumps(settings, indent=2) + "\n")
    golden = Golden(name, "onnx-colbert", "pylate", "maxsim", batch=32)

    def encode(texts: Sequence[str], size: int, *, is_query: bool) -> Any:
        return model.encode(list(texts), batch_size=size, is_query=is_query, show_progress_bar=False)

    golden.multi(
        lambda texts, size: encode(texts, size, is_query=True), lambda texts, size: encode(texts, size, is_query=False)
    )
    golden.write()


class States(torch.nn.Module):
    """The states of tokens, as the graphs of fastembed give them."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        named = {"token_type_ids": rest[0]} if rest else {}
        states: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask, **named).last_hidden_state
        return states


def make_fastembed(name: str, backbone: str, file: str, pooling: PoolingType) -> None:
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        save_backbone(backbone, Path(scratch), all_texts())
        tokenizer, model = AutoTokenizer.from_pretrained(scratch), AutoModel.from_pretrained(scratch).eval()
    tokenizer.save_pretrained(folder)
    model.config.save_pretrained(folder)
    inputs = tokenizer(["one text", "another one"], return_tensors="pt", padding=True)
    axes = {key: {0: "batch_size", 1: "sequence_length"} for key in [*inputs, "last_hidden_state"]}
    names = [key for key in ("input_ids", "attention_mask", "token_type_ids") if key in inputs]
    old_exporter(
        States(model),
        tuple(inputs[key] for key in names),
        str(folder / file),
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes=axes,
        opset_version=17,
    )
    TextEmbedding.add_custom_model(
        model=name,
        pooling=pooling,
        normalization=True,
        sources=ModelSource(hf=f"tiny/{name}"),
        dim=HIDDEN,
        model_file=file,
    )
    encoder = TextEmbedding(name, specific_model_path=str(folder), threads=1)
    golden = Golden(name, "onnx", "fastembed", "cosine", batch=32)
    golden.dense(*[lambda texts, size: list(encoder.embed(list(texts), batch_size=size))] * 2)
    golden.write()


CASES = {
    "onnx-colbert": partial(make_colbert, is_new=True),
    "onnx-colbert-2025": partial(make_colbert, is_new=False),
    # The name decides the pooling: families whose vector is that of the first token are known.
    "fastembed-bge-tiny": partial(
        make_fastembed, backbone="bert", file="model_optimized.onnx", pooling=PoolingType.CLS
    ),
    "fastembed-xlm-roberta": partial(
        make_fastembed, backbone="xlm-roberta", file="model.onnx", pooling=PoolingType.MEAN
    ),
}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        CASES[chosen](chosen)
