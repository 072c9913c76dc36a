"""Sparse models of sentence-transformers: SPLADE, and SPLADE with static weights for queries (inference-free).

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.st_sparse

with sentence-transformers 6.2.0, transformers 5.23.0 and torch 2.13.0.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding, SpladePooling, Transformer

from convert.make_checkpoints.backbones import save_backbone
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder


@dataclass(frozen=True, slots=True)
class Case:
    backbone: str = "bert"
    pooling: str = "max"
    activation: str = "relu"
    static_queries: bool = False
    shift: float = 8.0  # without it half of all terms have a weight


CASES = {
    "st-splade-bert": Case(),
    "st-splade-distilbert": Case("distilbert"),
    "st-splade-sum": Case(pooling="sum"),
    "st-splade-static-query": Case("distilbert", activation="log1p_relu", static_queries=True),
}


def shift_bias(transformer: Any, shift: float) -> None:
    """Lowers the bias of the vocabulary, which is the only vector of its size."""
    n_terms = len(transformer.tokenizer)
    with torch.no_grad():
        for weights in transformer.parameters():
            if weights.shape == (n_terms,):
                weights -= shift


def build(case: Case, backbone: Path) -> SparseEncoder:
    transformer = Transformer(str(backbone), transformer_task="fill-mask")
    shift_bias(transformer, case.shift)
    pooling = SpladePooling(pooling_strategy=case.pooling, activation_function=case.activation)
    if not case.static_queries:
        return SparseEncoder(modules=[transformer, pooling], device="cpu", similarity_fn_name="dot")
    generator = torch.Generator().manual_seed(11)
    weight = torch.rand(len(transformer.tokenizer), generator=generator) * 5
    static = SparseStaticEmbedding(transformer.tokenizer, weight=weight, frozen=True)
    router = Router.for_query_document(query_modules=[static], document_modules=[transformer, pooling])
    return SparseEncoder(modules=[router], device="cpu", similarity_fn_name="dot")


def items(vectors: torch.Tensor) -> list[dict[int, float]]:
    """One mapping of term to weight for each row of a (texts, vocabulary) matrix."""
    return [{int(term): float(row[term]) for term in row.nonzero().ravel()} for row in vectors]


def make(name: str, case: Case) -> None:
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        build(case, save_backbone(case.backbone, Path(scratch), all_texts(), auto="AutoModelForMaskedLM")).save(
            str(folder)
        )
    model = SparseEncoder(str(folder), device="cpu")

    def encode(texts: Sequence[str], size: int, *, is_query: bool) -> list[dict[int, float]]:
        run = model.encode_query if is_query else model.encode_document
        return items(run(list(texts), batch_size=size, convert_to_sparse_tensor=False))

    layout = "splade"
    golden = Golden(name, layout, "sentence-transformers", model.similarity_fn_name, batch=32)
    golden.sparse(
        lambda texts, size: encode(texts, size, is_query=True), lambda texts, size: encode(texts, size, is_query=False)
    )
    golden.write()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        make(chosen, CASES[chosen])
