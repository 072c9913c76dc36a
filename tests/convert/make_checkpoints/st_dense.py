"""Dense models of sentence-transformers: every pooling, every backbone, Dense and Normalize, prompts, Matryoshka.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.st_dense

with sentence-transformers 6.2.0, transformers 5.23.0 and torch 2.13.0.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

from convert.make_checkpoints.backbones import HIDDEN, randomise, save_backbone
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder

PROMPTS = {"query": "Represent this sentence for searching relevant passages: ", "document": "passage: "}


@dataclass(frozen=True, slots=True)
class Case:
    """One model: what follows the backbone, and the arguments of SentenceTransformer."""

    backbone: str = "bert"
    pooling: str | tuple[str, ...] = "mean"
    after: Callable[[], list[Any]] = list
    settings: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    tokenizer: dict[str, Any] = field(default_factory=dict)


def normalized() -> list[Any]:
    return [Normalize()]


def projected() -> list[Any]:
    wide = Dense(HIDDEN, 40, activation_function=torch.nn.Tanh())
    narrow = Dense(40, 12, bias=False, activation_function=torch.nn.Identity())
    return [wide, narrow, Normalize()]


def residual() -> list[Any]:
    return [
        Dense(HIDDEN, HIDDEN, activation_function=torch.nn.GELU(), use_residual=True),
        Dense(HIDDEN, 12, activation_function=torch.nn.ReLU(), use_residual=True),
    ]


CASES = {
    "st-bert-mean": Case(after=normalized),
    "st-bert-cls": Case(pooling="cls"),
    "st-bert-max": Case(pooling="max"),
    "st-bert-sqrt": Case(pooling="mean_sqrt_len_tokens", settings={"similarity_fn_name": "dot"}),
    "st-bert-weightedmean": Case(pooling="weightedmean"),
    "st-bert-lasttoken": Case(pooling="lasttoken"),
    "st-bert-cls-mean": Case(pooling=("cls", "mean"), after=normalized),
    "st-bert-dense": Case(after=projected),
    "st-bert-residual": Case(after=residual),
    "st-bert-prompts": Case(pooling="cls", after=normalized, settings={"prompts": PROMPTS}),
    "st-bert-matryoshka": Case(settings={"truncate_dim": 10}),
    "st-mpnet": Case("mpnet", after=normalized),
    "st-distilbert": Case("distilbert", pooling="cls"),
    "st-roberta": Case("roberta"),
    "st-xlm-roberta": Case(
        "xlm-roberta", after=normalized, settings={"prompts": {"query": "query: ", "document": "passage: "}}
    ),
    "st-modernbert": Case("modernbert", pooling="cls", after=normalized),
    "st-deberta-v3": Case("deberta-v3"),
    "st-nomic-bert": Case(
        "nomic-bert", settings={"prompts": {"query": "search_query: ", "document": "search_document: "}}
    ),
    "st-gte": Case("gte", pooling="cls", after=normalized),
    "st-qwen3": Case(
        "qwen3",
        pooling="lasttoken",
        after=normalized,
        settings={"prompts": {"query": "Instruct: Retrieve passages that answer it\nQuery:", "document": ""}},
    ),
    "st-qwen3-right": Case("qwen3", tokenizer={"padding_side": "right"}),
    "st-t5": Case("t5", after=lambda: [Dense(HIDDEN, 12, bias=False, activation_function=None), Normalize()]),
    "st-t5-relu": Case("t5", config={"feed_forward_proj": "relu"}),
}


def build(case: Case, backbone: Path) -> SentenceTransformer:
    modules = [Transformer(str(backbone)), Pooling(HIDDEN, case.pooling)]
    after = case.after()
    for number, module in enumerate(after):
        randomise(module, seed=100 + number)
    return SentenceTransformer(modules=modules + after, device="cpu", **case.settings)


def make(name: str, case: Case) -> None:
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        backbone = save_backbone(case.backbone, Path(scratch), all_texts(), tokenizer=case.tokenizer, **case.config)
        build(case, backbone).save(str(folder))
    model = SentenceTransformer(str(folder), device="cpu")
    golden = Golden(name, "sentence-transformers", "sentence-transformers", model.similarity_fn_name, batch=32)
    golden.dense(
        lambda texts, size: model.encode_query(list(texts), batch_size=size),
        lambda texts, size: model.encode_document(list(texts), batch_size=size),
    )
    golden.write()


def make_plain(name: str) -> None:
    """A folder of transformers alone, for which the library takes the mean of the tokens."""
    folder = save_backbone("bert", checkpoint_folder(name), all_texts())
    model = SentenceTransformer(str(folder), device="cpu")
    golden = Golden(name, "transformers", "sentence-transformers", "cosine", batch=32)
    golden.dense(*[lambda texts, size: model.encode(list(texts), batch_size=size)] * 2)
    golden.write()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*CASES, "transformers-bert"]:
        if chosen == "transformers-bert":
            make_plain(chosen)
        else:
            make(chosen, CASES[chosen])
