"""Small cross-encoders over the states of a frozen encoder: joint layers over both texts, and one of two heads.

[CLS] takes one number from the query's first token. [EMB] multiplies the states at the last token of each text, in
place of the papers' markers. Both are trained on each question's answer against two passages of BM25 and a random one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.encode.batches import by_length
from plait.train.cross.model import JointBlock
from plait.train.model import gather_rows
from plait_reproduce.frozen_encoder import States
from plait_reproduce.training.questions import TRAIN, Questions, batches, fit, questions
from plait_reproduce.training.recipes import seeded
from plait_reproduce.training.towers import MAX_BATCH_TOKENS, padded
from plait_reproduce.workbench import Arrays, Workbench

VERSION = 2
LAYER = -1  # the last: such small joint layers do not learn from a middle layer
WIDTH, N_LAYERS = 64, 2
WAYS = 4  # passages per question: its answer, two of BM25, and a random one
QUESTIONS = 16  # per step
STEPS = {"quick": 240, "full": 1500}
RATE = 2e-3


class PairTower(nn.Module):
    """From pairs of texts to scores (pairs,)."""

    def __init__(self, hidden: int, head: str) -> None:
        super().__init__()
        self.joint = JointBlock(hidden, WIDTH, N_LAYERS)
        self.pooler = nn.Linear(hidden, hidden) if head == "cls" else None
        self.output = nn.Linear(hidden, 1) if head == "cls" else None
        self.scale = hidden**-0.5

    def entered(self, states: States, items: Sequence[int], *, is_query: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The input of the joint layers (items, length, width), the mask, the position that the head reads, and the
        state there (items, hidden)."""
        values, tokens = padded(states, items)
        rows = self.joint.enter(values, torch.full(tokens.ids.shape, 0 if is_query else 1))
        at = tokens.mask.sum(dim=1) - 1 if self.output is None else torch.zeros(len(items), dtype=torch.int64)
        return rows, tokens.mask, at, gather_rows(values, at.unsqueeze(1))[:, 0]

    def forward(
        self, query: tuple[Tensor, Tensor, Tensor, Tensor], document: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> Tensor:
        """Scores of prepared texts, each query with the document of the same number."""
        rows, mask = (torch.cat([query[part], document[part]], dim=1) for part in (0, 1))
        at, states = query[2].unsqueeze(1), query[3].unsqueeze(1)
        if self.output is None:
            at = torch.cat([at, document[2].unsqueeze(1) + query[0].shape[1]], dim=1)
            states = torch.stack([query[3], document[3]], dim=1)
        states = states + self.joint.added(rows, mask, at)
        if self.pooler is None or self.output is None:
            products: Tensor = (states[:, 0] * states[:, 1]).sum(dim=1) * self.scale
            return products
        scores: Tensor = self.output(torch.tanh(self.pooler(states[:, 0])))[:, 0]
        return scores

    @torch.no_grad()
    def matrix(self, queries: States, documents: States) -> NDArray[np.float32]:
        """(queries, documents) scores of all pairs. Each text is prepared once."""
        scores = np.zeros((len(queries), len(documents)), np.float32)
        query_inputs = [self.entered(queries, [query], is_query=True) for query in range(len(queries))]
        for items in by_length(documents.lengths.tolist(), n_tokens=MAX_BATCH_TOKENS):
            document_input = self.entered(documents, items, is_query=False)
            for number, (rows, mask, at, state) in enumerate(query_inputs):
                n = len(items)
                query = (rows.expand(n, -1, -1), mask.expand(n, -1), at.expand(n), state.expand(n, -1))
                scores[number, items] = self(query, document_input).numpy()
        return scores


def trained_pairs(workbench: Workbench, head: str, *, seed: int) -> PairTower:
    """The cross-encoder with a head, trained unless it is saved."""
    training_set = questions(workbench, layer=LAYER)
    seeded(workbench, seed)
    tower = PairTower(training_set.hidden, head)

    def make() -> Arrays:
        workbench.say(f"training a cross-encoder: {head}, seed {seed}")
        train(tower, training_set, n_steps=STEPS[workbench.tier], seed=seed)
        return {name: value.detach().numpy() for name, value in tower.state_dict().items()}

    saved = workbench.arrays.get("pairs", key_of(workbench, head, seed), make)
    tower.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in saved.items()})
    return tower.eval()


def key_of(workbench: Workbench, head: str, seed: int) -> dict[str, Any]:
    """Everything that decides a trained cross-encoder."""
    return {"head": head, "seed": seed, "steps": STEPS[workbench.tier], "rate": RATE, "ways": WAYS, "width": WIDTH,
            "questions": QUESTIONS, "layers": N_LAYERS, "layer": LAYER, "data": workbench.key(TRAIN),
            "version": VERSION}  # fmt: skip


def train(tower: PairTower, training_set: Questions, *, n_steps: int, seed: int) -> list[float]:
    """Trains in place by cross-entropy over each question's list; returns the losses."""
    random = np.random.default_rng([seed, 1])
    steps = batches(training_set, min(QUESTIONS, len(set(training_set.positive.tolist()))), n_steps, seed=seed)

    def loss(_step: int) -> Tensor:
        chosen = next(steps)
        wrong = np.stack(
            [random.choice(training_set.negatives[question], WAYS - 2, replace=False) for question in chosen]
        )
        # The random passage is the answer to another question of the step.
        other = np.roll(training_set.positive[chosen], 1)
        passages = np.concatenate([training_set.positive[chosen][:, None], wrong, other[:, None]], axis=1).reshape(-1)
        query = tower.entered(training_set.queries, np.repeat(chosen, WAYS).tolist(), is_query=True)
        scores = tower(query, tower.entered(training_set.documents, passages.tolist(), is_query=False))
        return F.cross_entropy(scores.view(len(chosen), WAYS), torch.zeros(len(chosen), dtype=torch.int64))

    return fit(tower, loss, n_steps=n_steps, lr=RATE)
