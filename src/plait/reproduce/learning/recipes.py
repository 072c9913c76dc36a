"""Recipes of trained towers: what is made smaller, on which batches. Weights are kept by recipe, seed and rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from plait.errors import ConfigError
from plait.reproduce.arrays import Arrays
from plait.reproduce.learning.data import LAYER, TRAIN, Questions, batches, questions
from plait.reproduce.learning.fitting import fit
from plait.reproduce.learning.towers import Tower
from plait.reproduce.workbench import Workbench
from plait.train.encoded import Encoded
from plait.train.objectives.contrastive import contrastive
from plait.train.objectives.m3 import M3Config, m3
from plait.train.objectives.xtr import xtr_scores
from plait.train.scores import dense_scores, maxsim_scores, sparse_scores, token_similarities

VERSION = 1
BATCH = 16  # questions of a step; each brings its answer and one passage that BM25 takes for it
STEPS = {"quick": 100, "full": 600}
TEMPERATURE = 0.05
RATES = (5e-4, 2e-3)
OBJECTIVES = ("maxsim", "xtr", "unmasked", "m3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a tower is trained with. All recipes see the same batches of the same questions, as often."""

    objective: str = "maxsim"
    k: int = 32  # rows that a query row retrieves, of all rows of a batch; for xtr
    temperature: float = TEMPERATURE
    fixed: int = 0  # rows of a document; 0: one for each token
    distil: bool = True  # whether m3 learns from the sum of its strands too

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ConfigError(f"there is no objective {self.objective!r}; choose one of {', '.join(OBJECTIVES)}")


def trained(workbench: Workbench, recipe: Recipe, *, seed: int, lr: float) -> Tower:
    """The tower of a recipe, trained if it is not kept."""
    torch.set_num_threads(workbench.n_threads or 1)
    n_steps = STEPS[workbench.tier]
    own = questions(workbench)
    key = {"recipe": asdict(recipe), "seed": seed, "lr": lr, "steps": n_steps, "batch": BATCH, "layer": LAYER,
           "data": workbench.key(TRAIN), "version": VERSION}  # fmt: skip
    torch.manual_seed(seed)
    tower = made(recipe, own)

    def make() -> Arrays:
        train(tower, recipe, own, n_steps=n_steps, seed=seed, lr=lr)
        return {name: value.detach().numpy() for name, value in tower.state_dict().items()}

    kept = workbench.arrays.get("towers", key, make)
    tower.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in kept.items()})
    return tower.eval()


def made(recipe: Recipe, own: Questions) -> Tower:
    """A tower before training. Its map takes the mean of all states to zero: states of one encoder point one way."""
    positions = int(own.documents.lengths.max())
    tower = Tower(own.hidden, heads=recipe.objective == "m3", fixed=recipe.fixed, n_positions=max(64, positions))
    middle = torch.from_numpy(own.documents.values.astype(np.float32).mean(axis=0))
    with torch.no_grad():
        tower.enter.bias.copy_(-(tower.enter.weight @ middle))
    return tower


def train(tower: Tower, recipe: Recipe, own: Questions, *, n_steps: int, seed: int, lr: float) -> list[float]:
    """Trains a tower in place; gives the losses."""
    random = np.random.default_rng([seed, 1])
    steps = batches(own, min(BATCH, len(set(own.positive.tolist()))), n_steps, seed=seed)
    loss_of = losses(recipe)

    def loss(step: int) -> Tensor:
        chosen = next(steps)
        hard = own.negatives[chosen, random.integers(0, own.negatives.shape[1], len(chosen))]
        passages = np.concatenate([own.positive[chosen], hard])
        answers = own.positive[chosen]
        # A passage that answers the question is no wrong answer, wherever it stands.
        same = torch.from_numpy(answers[:, None] == passages[None, :])
        queries = tower.encode(own.queries, chosen.tolist(), is_query=True)
        documents = tower.encode(own.documents, passages.tolist(), is_query=False)
        positive = torch.arange(len(chosen))
        return loss_of(queries, documents, positive, same, step)

    return fit(tower, loss, n_steps=n_steps, lr=lr)


LossOf = Callable[[Encoded, Encoded, Tensor, Tensor, int], Tensor]


def losses(recipe: Recipe) -> LossOf:
    """The loss of queries, documents, the column of each answer, columns that are no negatives, and the step."""

    def by_tokens(queries: Encoded, documents: Encoded, positive: Tensor, same: Tensor, _step: int) -> Tensor:
        assert queries.multi_mask is not None
        assert documents.multi_mask is not None
        everything = int(documents.multi_mask.sum())
        scores = xtr_scores(
            token_similarities(queries, documents),
            queries.multi_mask,
            documents.multi_mask,
            # Without its mask the objective retrieves everything.
            k=recipe.k if recipe.objective == "xtr" else everything,
        )
        return contrastive(scores, positive, temperature=recipe.temperature, excluded=same)

    def by_maxsim(queries: Encoded, documents: Encoded, positive: Tensor, same: Tensor, _step: int) -> Tensor:
        scores = maxsim_scores(queries, documents, reduce="mean")
        return contrastive(scores, positive, temperature=recipe.temperature, excluded=same)

    def by_strands(queries: Encoded, documents: Encoded, positive: Tensor, same: Tensor, step: int) -> Tensor:
        scores = {
            "dense": dense_scores(queries, documents),
            "sparse": sparse_scores(queries, documents),
            "multi": maxsim_scores(queries, documents, reduce="mean"),
        }
        config = M3Config(temperature=recipe.temperature, start_step=0 if recipe.distil else 1 << 40)
        return m3(scores, positive, config, step=step, excluded=same)[0]

    ways: Mapping[str, LossOf] = {"maxsim": by_maxsim, "m3": by_strands}
    return ways.get(recipe.objective, by_tokens)
