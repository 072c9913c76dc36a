"""Multi-vector models of sentence-transformers: with and without prefix, expansion and skip list.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.st_multi

with sentence-transformers 6.2.0, transformers 5.23.0 and torch 2.13.0.
"""

from __future__ import annotations

import itertools
import string
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from tokenizers import AddedToken

from convert.make_checkpoints.backbones import DIM, HIDDEN, randomise, save_backbone
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder


@dataclass(frozen=True, slots=True)
class Case:
    backbone: str = "bert"
    markers: tuple[str, str] | None = None  # added to the vocabulary, as special tokens
    prompts: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, Any] = field(default_factory=dict)
    mask: dict[str, Any] = field(default_factory=dict)
    dims: tuple[int, ...] = (DIM,)
    residual: bool = False


PUNCTUATION = list(string.punctuation)
CASES = {
    "st-multi-plain": Case(),
    "st-multi-markers": Case(
        markers=("[Q] ", "[D] "),
        prompts={"query": "[Q] ", "document": "[D] "},
        lengths={"document_length": 40, "query_expansion": {"strategy": "fixed", "length": 24, "attend": False}},
        mask={"skiplist_words": PUNCTUATION},
    ),
    "st-multi-minimum": Case(
        "modernbert",
        prompts={"query": "search_query: ", "document": "search_document: "},
        lengths={
            "query_length": 48,
            "document_length": 40,
            "query_expansion": {"strategy": "min", "length": 20, "attend": True},
        },
        mask={"skiplist_words": [*PUNCTUATION, "Ġthe"], "skiplist_tasks": ["query", "document"]},
        dims=(32, DIM),
        residual=True,
    ),
}


def build(case: Case, backbone: Path) -> MultiVectorEncoder:
    transformer = Transformer(str(backbone), **case.lengths)
    if case.markers is not None:
        added = [AddedToken(marker, normalized=False, special=True) for marker in case.markers]
        transformer.tokenizer.add_special_tokens({"additional_special_tokens": added})
        transformer.model.resize_token_embeddings(len(transformer.tokenizer))
        randomise(transformer.model, seed=7)
    widths = [HIDDEN, *case.dims]
    dense = [
        Dense(
            n_in,
            n_out,
            bias=False,
            activation_function=torch.nn.Identity(),
            module_input_name="token_embeddings",
            use_residual=case.residual and n_out != widths[-1],
        )
        for n_in, n_out in itertools.pairwise(widths)
    ]
    for number, module in enumerate(dense):
        randomise(module, seed=100 + number)
    mask, normalize = MultiVectorMask(**case.mask), Normalize(module_input_name="token_embeddings")
    modules = [transformer, *dense, mask, normalize]
    return MultiVectorEncoder(modules=modules, device="cpu", prompts=case.prompts or None)


def make(name: str, case: Case) -> None:
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        build(case, save_backbone(case.backbone, Path(scratch), all_texts())).save(str(folder))
    model = MultiVectorEncoder(str(folder), device="cpu")
    golden = Golden(name, "sentence-transformers", "sentence-transformers", model.similarity_fn_name, batch=32)
    golden.multi(
        lambda texts, size: model.encode_query(list(texts), batch_size=size),
        lambda texts, size: model.encode_document(list(texts), batch_size=size),
    )
    golden.write()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        make(chosen, CASES[chosen])
