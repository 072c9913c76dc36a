"""A small BERT with word embeddings and random layers: pre-trained with RetroMAE, with masked words only, or not at
all, then trained to retrieve by the vector of its first token. Its vocabulary is the tokens that occur, each with the
bundled encoder's embedding reduced to fewer dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.encode.tokenizer import ModelTokenizer
from plait.train.backbone import Backbone
from plait.train.losses.contrastive import contrastive
from plait.train.model import pool
from plait.train.retromae import SPECIAL, MaskingConfig, RetroMae, WordedText, mask_batch
from plait.train.scores import dense_scores
from plait.train.tensors import Encoded, Tokens
from plait_reproduce.frozen_encoder import States
from plait_reproduce.training.questions import Questions, batches, fit

PAD, MASK, N_RESERVED = 0, 1, 2  # reserved ids that no text has
WIDTH, FEED, N_LAYERS, N_HEADS = 128, 256, 2, 4
TEXTS = 24  # per step of pre-training
QUESTIONS = 16  # per step of training, each with its answer and a passage of BM25
RATE = 1e-3
TEMPERATURE = 0.05
SPREAD = 0.05  # standard deviation of the embeddings: above the initial one of positions in BERT


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """The ids that occur, renumbered from N_RESERVED."""

    known: NDArray[np.int32]  # ascending

    @classmethod
    def of(cls, *texts: States) -> Vocabulary:
        return cls(np.unique(np.concatenate([states.ids for states in texts])))

    def __len__(self) -> int:
        return len(self.known) + N_RESERVED

    def ids(self, states: States, item: int) -> NDArray[np.int64]:
        return np.searchsorted(self.known, states.ids[states.of(item)]).astype(np.int64) + N_RESERVED


def worded(states: States, vocabulary: Vocabulary, reader: ModelTokenizer) -> list[WordedText]:
    """Texts with their words: a token that begins with ## continues the word before it."""
    continues = np.array([reader.token(int(id)).startswith("##") for id in vocabulary.known])
    results = []
    for item in range(len(states)):
        ids = vocabulary.ids(states, item)
        words = np.cumsum(~continues[ids - N_RESERVED])
        words[[0, -1]] = SPECIAL
        results.append(WordedText(ids, words.astype(np.int64)))
    return results


def embeddings(vocabulary: Vocabulary, *texts: States) -> NDArray[np.float32]:
    """(ids, WIDTH): the mean of each token's states below the first layer, in their principal directions. The two
    reserved ids are zero."""
    sums = np.zeros((len(vocabulary), texts[0].values.shape[1]))
    counts = np.zeros(len(vocabulary))
    for states in texts:
        ids = np.searchsorted(vocabulary.known, states.ids) + N_RESERVED
        np.add.at(sums, ids, states.values.astype(np.float64))
        np.add.at(counts, ids, 1)
    means = sums[N_RESERVED:] / np.maximum(counts[N_RESERVED:, None], 1)
    means = means - means.mean(axis=0)
    _, _, directions = np.linalg.svd(means, full_matrices=False)
    vectors = np.zeros((len(vocabulary), WIDTH), np.float32)
    projected = means @ directions[:WIDTH].T
    vectors[N_RESERVED:, : projected.shape[1]] = SPREAD * projected / projected.std()
    return vectors


def small_bert(words: NDArray[np.float32], n_positions: int) -> nn.Module:
    """A masked language model with given embeddings (ids, WIDTH) and random layers."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=len(words), hidden_size=WIDTH, num_hidden_layers=N_LAYERS, num_attention_heads=N_HEADS,
        intermediate_size=FEED, max_position_embeddings=n_positions, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, pad_token_id=PAD,
    )  # fmt: skip
    model: nn.Module = BertForMaskedLM(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(torch.from_numpy(words))  # type: ignore[operator]
    return model


def pretrain(model: nn.Module, texts: Sequence[WordedText], n_ids: int, *, decoder: bool, n_steps: int,
             seed: int) -> list[float]:  # fmt: skip
    """Trains the encoder inside a masked language model; without `decoder`, on masked words only."""
    whole = RetroMae(model)
    random = np.random.default_rng([seed, 2])
    config = MaskingConfig(mask_id=MASK, n_ids=n_ids)

    def loss(_step: int) -> Tensor:
        chosen = random.choice(len(texts), min(TEXTS, len(texts)), replace=False)
        loss_parts = whole(mask_batch([texts[item] for item in chosen], config, random))
        total: Tensor = loss_parts.total if decoder else loss_parts.encoder
        return total

    return fit(whole, loss, n_steps=n_steps, lr=RATE)


class Dense(nn.Module):
    """One vector per text: the state of its first token."""

    def __init__(self, model: nn.Module, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.backbone = Backbone(model.base_model)  # type: ignore[arg-type]
        self._vocabulary = vocabulary

    def encode(self, states: States, items: Sequence[int]) -> Encoded:
        ids = [self._vocabulary.ids(states, item) for item in items]
        padded = np.full((len(ids), max(len(text_ids) for text_ids in ids)), PAD, np.int64)
        for row, text_ids in enumerate(ids):
            padded[row, : len(text_ids)] = text_ids
        mask = torch.from_numpy(padded != PAD)
        return Encoded(dense=pool(self.backbone(Tokens(torch.from_numpy(padded), mask, mask)), mask, pooling="cls"))


def teach(model: Dense, training_set: Questions, *, n_steps: int, seed: int) -> list[float]:
    """Contrastive training on questions and their passages."""
    random = np.random.default_rng([seed, 3])
    steps = batches(training_set, min(QUESTIONS, len(set(training_set.positive.tolist()))), n_steps, seed=seed)

    def loss(_step: int) -> Tensor:
        chosen = next(steps)
        hard = training_set.negatives[chosen, random.integers(0, training_set.negatives.shape[1], len(chosen))]
        passages = np.concatenate([training_set.positive[chosen], hard])
        same = torch.from_numpy(training_set.positive[chosen][:, None] == passages[None, :])
        scores = dense_scores(
            model.encode(training_set.queries, chosen.tolist()), model.encode(training_set.documents, passages.tolist())
        )
        return contrastive(scores, torch.arange(len(chosen)), temperature=TEMPERATURE, excluded=same)

    return fit(model, loss, n_steps=n_steps, lr=RATE)


@torch.no_grad()
def scores_of(model: Dense, queries: States, documents: States, *, at_once: int = 100) -> NDArray[np.float32]:
    """(queries, documents) scores."""
    encoded_queries = model.encode(queries, range(len(queries)))
    parts = [
        dense_scores(
            encoded_queries, model.encode(documents, range(start, min(start + at_once, len(documents))))
        ).numpy()
        for start in range(0, len(documents), at_once)
    ]
    return np.concatenate(parts, axis=1)
