"""Checkpoints of FlagEmbedding: BGE-M3 with its three kinds of embedding, and a reranker.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.flag_embedding
    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.flag_embedding bge-reranker

with FlagEmbedding 1.4.2, transformers 5.23.0 and torch 2.13.0; `bge-reranker` with transformers 4.57.6, because with
version 5 FlagEmbedding turns the tokens of a pair into text and back, which changes pairs with unknown characters.
`bge-m3` has the files of sentence-transformers too, as the published folder has; `bge-m3-narrow` is a folder as
FlagEmbedding's own training writes it, with narrow vectors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from FlagEmbedding import BGEM3FlagModel, FlagReranker
from transformers import XLMRobertaTokenizerFast

from convert.make_checkpoints.backbones import DIM, HIDDEN, LENGTH, randomise, save_backbone
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder

RERANKER_POSITIONS = 1100
KINDS = {"dense": "dense_vecs", "sparse": "lexical_weights", "multi": "colbert_vecs"}


def save_heads(folder: Path, multi_dim: int) -> None:
    multi, sparse = torch.nn.Linear(HIDDEN, multi_dim), torch.nn.Linear(HIDDEN, 1)
    randomise(multi, seed=100)
    randomise(sparse, seed=101)
    with torch.no_grad():
        sparse.bias.fill_(1.0)  # tokens on both sides of zero
    torch.save(multi.state_dict(), folder / "colbert_linear.pt")
    torch.save(sparse.state_dict(), folder / "sparse_linear.pt")


def add_sentence_transformers(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    modules = [Transformer(str(folder)), Pooling(HIDDEN, "cls"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))


def make_m3(name: str, multi_dim: int) -> None:
    folder = save_backbone("xlm-roberta", checkpoint_folder(name), all_texts())
    if multi_dim == HIDDEN:
        add_sentence_transformers(folder)
    save_heads(folder, multi_dim)
    model = BGEM3FlagModel(
        str(folder), use_fp16=False, devices=["cpu"], colbert_dim=-1 if multi_dim == HIDDEN else multi_dim
    )
    golden = Golden(name, "bge-m3", "FlagEmbedding", "cosine", batch=32, note="the library divides MaxSim by rows")

    def encode(texts: Sequence[str], size: int, kind: str) -> Any:
        flags = {"return_dense": True, "return_sparse": True, "return_colbert_vecs": True}
        return model.encode(list(texts), batch_size=size, max_length=LENGTH, **flags)[KINDS[kind]]

    def sparse(texts: Sequence[str], size: int) -> list[dict[int, float]]:
        return [
            {int(term): float(weight) for term, weight in item.items() if weight > 0}
            for item in encode(texts, size, "sparse")
        ]

    golden.dense(*[lambda texts, size: encode(texts, size, "dense")] * 2)
    golden.sparse(sparse, sparse)
    golden.multi(*[lambda texts, size: encode(texts, size, "multi")] * 2)
    golden.write()


def make_reranker(name: str) -> None:
    folder = save_backbone(
        "xlm-roberta",
        checkpoint_folder(name),
        all_texts(),
        auto="AutoModelForSequenceClassification",
        # Long enough for every pair: the library truncates pairs in a way of its own.
        tokenizer={"model_max_length": RERANKER_POSITIONS},
        max_position_embeddings=RERANKER_POSITIONS + 2,
        id2label={0: "LABEL_0"},
        label2id={"LABEL_0": 0},
    )
    # The general class of transformers 4 would put no special tokens around a pair of token ids.
    tokenizer = XLMRobertaTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), model_max_length=RERANKER_POSITIONS
    )
    tokenizer.save_pretrained(folder)
    model = FlagReranker(str(folder), use_fp16=False, devices=["cpu"], max_length=RERANKER_POSITIONS)
    note = "scores after Sigmoid (normalize=True)"
    golden = Golden(name, "reranker", "FlagEmbedding", "score", batch=32, note=note)
    golden.pairs(lambda pairs, size: model.compute_score(list(pairs), batch_size=size, normalize=True))
    golden.write()


CASES = {
    "bge-m3": lambda name: make_m3(name, HIDDEN),
    "bge-m3-narrow": lambda name: make_m3(name, DIM),
    "bge-reranker": make_reranker,
}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or list(CASES)[:2]:
        CASES[chosen](chosen)
