"""Training data: questions, the passage that answers each, and hard negatives of BM25. And the training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.train.optimiser import OptimiserConfig, lr_schedule, make_optimiser
from plait_reproduce.frozen_encoder import FrozenEncoder, States
from plait_reproduce.workbench import Workbench

LAYER = 6  # half of the layers: the upper half was trained for retrieval
TRAIN, TEST, OTHER = "squad-train", "squad-test", "climate-small"
N_NEGATIVES = 10  # the number of BM25's best to draw from


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """Texts of a set as states. Row i of `negatives` has passages that BM25 ranks high for question i."""

    queries: States
    documents: States
    positive: NDArray[np.int64]  # (queries,) the first relevant passage
    negatives: NDArray[np.int64]  # (queries, N_NEGATIVES)

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def hidden(self) -> int:
        return int(self.queries.values.shape[1])


def states_of(workbench: Workbench, name: str, *, masks: int = 0, layer: int = LAYER) -> tuple[States, States]:
    """The states after a layer of the queries of a set, filled with [MASK] to `masks` tokens, and of its documents."""
    texts, length = workbench.texts(name), workbench.cut(name).length
    encoder = FrozenEncoder(workbench, layer=layer, length=length, masks=masks)
    queries = encoder.queries(name, list(texts.queries.values()))
    return queries, encoder.documents(name, [(document.title, document.text) for document in texts.documents])


def questions(workbench: Workbench, name: str = TRAIN, *, masks: int = 0, layer: int = LAYER) -> Questions:
    """The training questions of a set."""
    texts, run = workbench.texts(name), workbench.bm25(name)
    numbers = {document.id: number for number, document in enumerate(texts.documents)}
    random = np.random.default_rng(0)
    positive, negatives = [], []
    for query in texts.queries:
        answers = {numbers[id] for id, grade in texts.qrels[query].items() if grade > 0}
        positive.append(min(answers))
        likely = [numbers[id] for id, _ in run[query] if numbers[id] not in answers][:N_NEGATIVES]
        # If BM25 finds too few, random ones are added.
        while len(likely) < N_NEGATIVES:
            random_passage = int(random.integers(len(numbers)))
            likely += [random_passage] if random_passage not in answers else []
        negatives.append(likely)
    queries, documents = states_of(workbench, name, masks=masks, layer=layer)
    return Questions(queries, documents, np.array(positive), np.array(negatives))


def batches(training_set: Questions, size: int, n_steps: int, *, seed: int) -> Iterator[NDArray[np.int64]]:
    """The questions of each step, no two with the same passage: the answer to one would be a false negative of the
    other."""
    random = np.random.default_rng(seed)
    waiting: list[int] = []
    for _ in range(n_steps):
        chosen: list[int] = []
        used: set[int] = set()
        passed: list[int] = []
        while len(chosen) < size:
            if not waiting:
                waiting = random.permutation(len(training_set)).tolist()
            question = waiting.pop()
            answer = int(training_set.positive[question])
            (passed if answer in used else chosen).append(question)
            used.add(answer)
        waiting = passed + waiting
        yield np.array(chosen, np.int64)


WARMUP = 0.1
CLIP = 1.0


def fit(module: nn.Module, loss_of: Callable[[int], Tensor], *, n_steps: int, lr: float) -> list[float]:
    """Minimises `loss_of(step)` for `n_steps` steps; returns the losses."""
    config = OptimiserConfig(lr=lr, steps=n_steps, warmup=WARMUP, schedule="linear")
    optimiser = make_optimiser([{"params": list(module.parameters()), "lr": lr, "weight_decay": 0.01}], config)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lr_schedule(config, n_steps))
    losses = []
    for step in range(n_steps):
        loss = loss_of(step)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), CLIP)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses
