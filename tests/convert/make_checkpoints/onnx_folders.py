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
from fastembed.rerank.cross_encoder import TextCrossEncoder
from pylate import models
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

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


class FirstOutput(torch.nn.Module):
    """The output of a model that the graphs of fastembed give: states of tokens, or logits of pairs."""

    def __init__(self, model: torch.nn.Module, output: str) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        named = {"token_type_ids": rest[0]} if rest else {}
        answer: torch.Tensor = getattr(
            self.model(input_ids=input_ids, attention_mask=attention_mask, **named), self.output
        )
        return answer


def export_graph(folder: Path, backbone: str, file: str, output: str, *, auto: Any, **config: Any) -> None:
    """A folder of fastembed: a graph, the tokenizer and the config, without weights."""
    with tempfile.TemporaryDirectory() as scratch:
        save_backbone(backbone, Path(scratch), all_texts(), auto=auto.__name__, **config)
        tokenizer, model = AutoTokenizer.from_pretrained(scratch), auto.from_pretrained(scratch).eval()
    tokenizer.save_pretrained(folder)
    model.config.save_pretrained(folder)
    inputs = tokenizer(["one text", "another one"], ["a pair", "of texts"], return_tensors="pt", padding=True)
    names = [key for key in ("input_ids", "attention_mask", "token_type_ids") if key in inputs]
    axes = {key: {0: "batch_size", 1: "sequence_length"} for key in names}
    axes[output] = {0: "batch_size"} if output == "logits" else {0: "batch_size", 1: "sequence_length"}
    (folder / file).parent.mkdir(exist_ok=True)
    old_exporter(
        FirstOutput(model, output),
        tuple(inputs[key] for key in names),
        str(folder / file),
        input_names=names,
        output_names=[output],
        dynamic_axes=axes,
        opset_version=17,
    )


def make_fastembed(name: str, backbone: str, file: str, pooling: PoolingType) -> None:
    folder = checkpoint_folder(name)
    export_graph(folder, backbone, file, "last_hidden_state", auto=AutoModel)
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


def make_reranker(name: str, backbone: str, file: str) -> None:
    folder = checkpoint_folder(name)
    labels = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    export_graph(folder, backbone, file, "logits", auto=AutoModelForSequenceClassification, **labels)
    TextCrossEncoder.add_custom_model(model=name, sources=ModelSource(hf=f"tiny/{name}"), model_file=file)
    encoder = TextCrossEncoder(name, specific_model_path=str(folder), threads=1)
    # plait follows CrossEncoder, which applies Sigmoid where a folder says nothing; fastembed returns logits.
    note = "Sigmoid of the library's scores, which are logits"
    golden = Golden(name, "onnx-reranker", "fastembed", "score", batch=32, note=note)

    def score(pairs: Sequence[tuple[str, str]], size: int) -> Any:
        return torch.sigmoid(torch.tensor(list(encoder.rerank_pairs(list(pairs), batch_size=size)))).numpy()

    golden.pairs(score)
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
    "fastembed-reranker": partial(make_reranker, backbone="bert", file="onnx/model.onnx"),
}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        CASES[chosen](chosen)
