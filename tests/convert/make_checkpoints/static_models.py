"""Static models: model2vec with and without weights, mapping and normalisation, and StaticEmbedding.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.static_models

with model2vec 0.10.0 and sentence-transformers 6.2.0.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder
from convert.make_checkpoints.tokenizers_of_texts import bert_words

DIM = 16
CASES: dict[str, dict[str, bool]] = {
    "model2vec": {"normalize": True},
    "model2vec-weights": {"normalize": False, "weights": True, "mapping": True},
}


def make_model2vec(name: str, *, normalize: bool, weights: bool = False, mapping: bool = False) -> None:
    tokenizer = bert_words(all_texts(), 300)
    n_tokens, numbers = tokenizer.get_vocab_size(), np.random.default_rng(5)
    n_rows = n_tokens // 2 if mapping else n_tokens
    settings: dict[str, Any] = {}
    if weights:
        settings["weights"] = numbers.uniform(0.1, 2, n_tokens).astype(np.float32)
    if mapping:
        settings["token_mapping"] = numbers.integers(0, n_rows, n_tokens)
    vectors = numbers.standard_normal((n_rows, DIM)).astype(np.float32)
    folder = checkpoint_folder(name)
    config = {"model_type": "model2vec", "architectures": ["StaticModel"]}
    StaticModel(vectors, tokenizer, config, normalize=normalize, **settings).save_pretrained(folder)
    model = StaticModel.from_pretrained(folder)
    golden = Golden(name, "model2vec", "model2vec", "cosine", batch=1024)
    golden.dense(*[lambda texts, size: model.encode(list(texts), batch_size=size)] * 2)
    golden.write()


def make_static_embedding(name: str) -> None:
    tokenizer = bert_words(all_texts(), 300)
    vectors = torch.randn(tokenizer.get_vocab_size(), DIM, generator=torch.Generator().manual_seed(5))
    folder = checkpoint_folder(name)
    module = StaticEmbedding(tokenizer, embedding_weights=vectors)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder))
    model = SentenceTransformer(str(folder), device="cpu")
    # The library reads texts of any length; plait reads passages of 512 tokens unless it is given another length.
    overrides = {"query_length": 1024, "document_length": 1024}
    golden = Golden(name, "model2vec", "sentence-transformers", "cosine", batch=32, overrides=overrides)
    golden.dense(*[lambda texts, size: model.encode(list(texts), batch_size=size)] * 2)
    golden.write()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*CASES, "st-static"]:
        if chosen == "st-static":
            make_static_embedding(chosen)
        else:
            make_model2vec(chosen, **CASES[chosen])
