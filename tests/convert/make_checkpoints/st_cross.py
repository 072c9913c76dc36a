"""Cross-encoders of sentence-transformers, and a reranker in the shape of bge-reranker (transformers alone).

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.st_cross

with sentence-transformers 6.2.0, transformers 5.23.0 and torch 2.13.0.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder

from convert.make_checkpoints.backbones import save_backbone
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder


@dataclass(frozen=True, slots=True)
class Case:
    backbone: str
    activation: Any  # None: the folder is saved by transformers, and says nothing about it
    config: dict[str, Any] = field(default_factory=dict)


CASES = {
    "st-cross-bert": Case("bert", torch.nn.Identity()),
    "st-cross-bert-sigmoid": Case("bert", torch.nn.Sigmoid()),
    "st-cross-distilbert": Case("distilbert", torch.nn.Identity()),
    "st-cross-roberta": Case("roberta", torch.nn.Identity()),
    "st-cross-xlm-roberta": Case("xlm-roberta", torch.nn.Sigmoid()),
    "st-cross-modernbert": Case("modernbert", torch.nn.Sigmoid()),
    "st-cross-modernbert-cls": Case("modernbert", torch.nn.Identity(), {"classifier_pooling": "cls"}),
    "st-cross-deberta-v3": Case("deberta-v3", torch.nn.Identity()),
    # The older place of the activation, as in the published ms-marco models.
    "cross-bert-old": Case("bert", None, {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}),
    "cross-xlm-roberta-plain": Case("xlm-roberta", None),
}


def make(name: str, case: Case) -> None:
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        backbone = save_backbone(
            case.backbone,
            folder if case.activation is None else Path(scratch),
            all_texts(),
            auto="AutoModelForSequenceClassification",
            id2label={0: "LABEL_0"},
            label2id={"LABEL_0": 0},
            **case.config,
        )
        if case.activation is not None:
            CrossEncoder(str(backbone), device="cpu", activation_fn=case.activation).save(str(folder))
    model = CrossEncoder(str(folder), device="cpu")
    note = f"scores after {type(model.activation_fn).__name__}"
    golden = Golden(name, "reranker", "sentence-transformers", "score", batch=32, note=note)
    golden.pairs(lambda pairs, size: model.predict(list(pairs), batch_size=size))
    golden.write()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        make(chosen, CASES[chosen])
