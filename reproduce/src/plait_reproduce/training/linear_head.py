"""A linear head over a text's first-token vector, or over the mean of all tokens, trained on short texts. The encoder
is frozen, so text vectors are computed once and training takes a second."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.train.losses.contrastive import contrastive
from plait_reproduce.training.questions import fit

VERSION = 1
WIDTH = 128
QUESTIONS = 64  # per step; the answers to the other questions are the negatives
STEPS = {"quick": 300, "full": 1500}
RATES = (5e-4, 2e-3)
TEMPERATURE = 0.05
DEV_SHARE = 5  # one question in DEV_SHARE is held out to choose the learning rate

Vectors = NDArray[np.float32]  # (texts, hidden)


class Head(nn.Module):
    """(texts, hidden) to (texts, WIDTH), normalised. It centres its training vectors: vectors of one encoder point in
    one direction."""

    def __init__(self, middle: Vectors) -> None:
        super().__init__()
        self.map = nn.Linear(middle.shape[-1], WIDTH)
        nn.init.orthogonal_(self.map.weight)
        with torch.no_grad():
            self.map.bias.copy_(-(self.map.weight @ torch.from_numpy(middle)))

    def forward(self, vectors: Tensor) -> Tensor:
        return F.normalize(self.map(vectors), dim=-1)

    @torch.no_grad()
    def encode(self, vectors: Vectors) -> Vectors:
        vectors_: Vectors = self(torch.from_numpy(np.ascontiguousarray(vectors, np.float32))).numpy()
        return vectors_


def taught(questions: Vectors, answers: Vectors, passage: NDArray[np.int64], *, n_steps: int, seed: int) -> Head:
    """The head that brings questions to their answers, with the learning rate that does best on held-out questions. Row
    i of `answers` answers question i; `passage` has its number, because two questions may share an answer."""
    order = np.random.default_rng([seed, 4]).permutation(len(questions))
    dev, rest = order[: len(order) // DEV_SHARE], order[len(order) // DEV_SHARE :]

    def found(positions: NDArray[np.int64], lr: float) -> Head:
        torch.manual_seed(seed)
        head = Head(answers[positions].mean(axis=0))
        _teach(head, questions[positions], answers[positions], passage[positions], n_steps=n_steps, seed=seed, lr=lr)
        return head

    def right(lr: float) -> float:
        """The mean reciprocal rank of the answers to dev questions among all answers."""
        head = found(rest, lr)
        scores = head.encode(questions[dev]) @ head.encode(answers).T
        answer_scores = scores[np.arange(len(dev)), dev]
        return float((1 / (1 + (scores > answer_scores[:, None] + 1e-6).sum(axis=1))).mean())

    return found(np.sort(order), max(RATES, key=right))


def _teach(
    head: Head, questions: Vectors, answers: Vectors, passage: NDArray[np.int64], *, n_steps: int, seed: int, lr: float
) -> None:
    random = np.random.default_rng([seed, 5])

    def loss(_step: int) -> Tensor:
        chosen = random.choice(len(questions), min(QUESTIONS, len(questions)), replace=False)
        scores = head(torch.from_numpy(questions[chosen])) @ head(torch.from_numpy(answers[chosen])).T
        same = torch.from_numpy(passage[chosen][:, None] == passage[chosen][None, :])
        return contrastive(scores, torch.arange(len(chosen)), temperature=TEMPERATURE, excluded=same)

    fit(head, loss, n_steps=n_steps, lr=lr)
