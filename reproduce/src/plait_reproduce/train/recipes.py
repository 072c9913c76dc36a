"""Recipes of trained towers: what is made smaller, on which batches. Weights are kept by recipe, seed and rate."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait_reproduce.arrays import Arrays
from plait_reproduce.train.data import LAYER, TRAIN, Questions, batches, questions
from plait_reproduce.train.fitting import fit
from plait_reproduce.train.lists import Lists, retrieved_lists
from plait_reproduce.train.losses import Recipe, Step, losses
from plait_reproduce.train.towers import WIDTH, Tower
from plait_reproduce.workbench import Workbench

VERSION = 1
PASSAGES = 32  # of a step: the answer to each question, and others that look like it
LIST = 8  # passages of a question where a teacher scores them; else two
STEPS = {"quick": 160, "full": 800}
RATES = (5e-4, 2e-3)


def trained(workbench: Workbench, recipe: Recipe, *, seed: int, lr: float) -> Tower:
    """The tower of a recipe, trained if it is not kept."""
    n_steps = STEPS[workbench.tier]
    own = questions(workbench, masks=recipe.masks)
    seeded(workbench, seed)
    tower = made(recipe, own)

    def make() -> Arrays:
        lists = lists_of(workbench, own, seed=seed, lr=lr) if recipe.objective == "lists" else None
        train(tower, recipe, own, n_steps=n_steps, seed=seed, lr=lr, lists=lists)
        return {name: value.detach().numpy() for name, value in tower.state_dict().items()}

    kept = workbench.arrays.get("towers", key_of(workbench, recipe, seed=seed, lr=lr), make)
    tower.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in kept.items()})
    return tower.eval()


def seeded(workbench: Workbench, seed: int) -> None:
    """Sets torch's own seed and threads: what a training gives depends on both."""
    torch.set_num_threads(workbench.n_threads or 1)
    torch.manual_seed(seed)


def key_of(workbench: Workbench, recipe: Recipe, *, seed: int, lr: float) -> dict[str, Any]:
    """All that decides a trained tower."""
    return {"recipe": asdict(recipe), "seed": seed, "lr": lr, "steps": STEPS[workbench.tier], "passages": PASSAGES,
            "layer": LAYER, "width": WIDTH, "data": workbench.key(TRAIN), "version": VERSION}  # fmt: skip


def lists_of(workbench: Workbench, own: Questions, *, seed: int, lr: float) -> Lists:
    """What the model trained on triples, at the same seed and rate, retrieves; and the teacher's scores of it."""
    first = trained(workbench, Recipe(objective="triples"), seed=seed, lr=lr)
    return retrieved_lists(workbench, own, first)


def made(recipe: Recipe, own: Questions) -> Tower:
    """A tower before training. Its map takes the mean of all states to zero: states of one encoder point one way."""
    positions = int(own.documents.lengths.max())
    tower = Tower(own.hidden, heads=recipe.objective == "m3", fixed=recipe.fixed, n_positions=max(64, positions))
    middle = torch.from_numpy(own.documents.values.astype(np.float32).mean(axis=0))
    with torch.no_grad():
        tower.enter.bias.copy_(-(tower.enter.weight @ middle))
    return tower


def train(
    tower: Tower, recipe: Recipe, own: Questions, *, n_steps: int, seed: int, lr: float, lists: Lists | None = None
) -> list[float]:
    """Trains a tower in place; gives the losses. `lists` is needed by the objective of that name."""
    random = np.random.default_rng([seed, 1])
    n_ways = LIST if lists is not None else 2
    steps = batches(own, min(PASSAGES // n_ways, len(set(own.positive.tolist()))), n_steps, seed=seed)
    loss_of = losses(recipe)

    def loss(step: int) -> Tensor:
        chosen = next(steps)
        likely = own.negatives if lists is None else lists.candidates
        wrong = np.stack([random.choice(likely[question], n_ways - 1, replace=False) for question in chosen])
        ways = np.concatenate([own.positive[chosen][:, None], wrong], axis=1)
        passages = ways.reshape(-1)
        queries = tower.encode(own.queries, chosen.tolist(), is_query=True)
        documents = tower.encode(own.documents, passages.tolist(), is_query=False)
        teacher = None if lists is None else torch.from_numpy(lists.teacher[chosen[:, None], ways])
        # A passage that answers the question is no wrong answer, wherever it stands.
        same = torch.from_numpy(own.positive[chosen][:, None] == passages[None, :])
        return loss_of(Step(queries, documents, torch.arange(len(chosen)) * n_ways, same, teacher, step))

    return fit(tower, loss, n_steps=n_steps, lr=lr)
