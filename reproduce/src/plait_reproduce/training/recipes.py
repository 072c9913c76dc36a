"""Recipes of trained towers: losses, batches and teacher lists. Weights are saved by recipe, seed and learning rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.errors import ConfigError
from plait.scoring.maxsim import maxsim
from plait.train.losses.contrastive import contrastive
from plait.train.losses.distillation import distillation, in_batch, query_lists
from plait.train.losses.m3 import M3Config, m3
from plait.train.losses.xtr import xtr_scores
from plait.train.scores import dense_scores, maxsim_scores, sparse_scores, token_similarities
from plait.train.tensors import Encoded
from plait_reproduce.training.questions import LAYER, TRAIN, Questions, batches, fit, questions
from plait_reproduce.training.towers import WIDTH, Tower
from plait_reproduce.workbench import Arrays, Workbench

VERSION = 1
PASSAGES = 32  # per step: the answer to each question, and hard negatives
LIST = 8  # passages per question with teacher scores; else two
STEPS = {"quick": 160, "full": 800}
RATES = (5e-4, 2e-3)


def trained(workbench: Workbench, recipe: Recipe, *, seed: int, lr: float) -> Tower:
    """The tower of a recipe, trained unless it is saved."""
    n_steps = STEPS[workbench.tier]
    training_set = questions(workbench, masks=recipe.masks)
    seeded(workbench, seed)
    tower = made(recipe, training_set)

    def make() -> Arrays:
        lists = lists_of(workbench, training_set, seed=seed, lr=lr) if recipe.objective == "lists" else None
        train(tower, recipe, training_set, n_steps=n_steps, seed=seed, lr=lr, lists=lists)
        return {name: value.detach().numpy() for name, value in tower.state_dict().items()}

    saved = workbench.arrays.get("towers", key_of(workbench, recipe, seed=seed, lr=lr), make)
    tower.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in saved.items()})
    return tower.eval()


def seeded(workbench: Workbench, seed: int) -> None:
    """Sets torch's seed and threads, which both decide the weights."""
    torch.set_num_threads(workbench.n_threads or 1)
    torch.manual_seed(seed)


def key_of(workbench: Workbench, recipe: Recipe, *, seed: int, lr: float) -> dict[str, Any]:
    """Everything that decides a trained tower."""
    return {"recipe": asdict(recipe), "seed": seed, "lr": lr, "steps": STEPS[workbench.tier], "passages": PASSAGES,
            "layer": LAYER, "width": WIDTH, "data": workbench.key(TRAIN), "version": VERSION}  # fmt: skip


def lists_of(workbench: Workbench, training_set: Questions, *, seed: int, lr: float) -> Lists:
    """The passages that a model trained on triples with the same seed and rate retrieves, and the teacher's scores of
    them."""
    first = trained(workbench, Recipe(objective="triples"), seed=seed, lr=lr)
    return retrieved_lists(workbench, training_set, first)


def made(recipe: Recipe, training_set: Questions) -> Tower:
    """A tower before training. Its map centres the states: states of one encoder point in one direction."""
    positions = int(training_set.documents.lengths.max())
    tower = Tower(
        training_set.hidden, heads=recipe.objective == "m3", fixed=recipe.fixed, n_positions=max(64, positions)
    )
    middle = torch.from_numpy(training_set.documents.values.astype(np.float32).mean(axis=0))
    with torch.no_grad():
        tower.enter.bias.copy_(-(tower.enter.weight @ middle))
    return tower


def train(
    tower: Tower,
    recipe: Recipe,
    training_set: Questions,
    *,
    n_steps: int,
    seed: int,
    lr: float,
    lists: Lists | None = None,
) -> list[float]:
    """Trains a tower in place; returns the losses. `lists` is needed by the objective of that name."""
    random = np.random.default_rng([seed, 1])
    n_ways = LIST if lists is not None else 2
    steps = batches(training_set, min(PASSAGES // n_ways, len(set(training_set.positive.tolist()))), n_steps, seed=seed)
    loss_of = losses(recipe)

    def loss(step: int) -> Tensor:
        chosen = next(steps)
        likely = training_set.negatives if lists is None else lists.candidates
        wrong = np.stack([random.choice(likely[question], n_ways - 1, replace=False) for question in chosen])
        ways = np.concatenate([training_set.positive[chosen][:, None], wrong], axis=1)
        passages = ways.reshape(-1)
        queries = tower.encode(training_set.queries, chosen.tolist(), is_query=True)
        documents = tower.encode(training_set.documents, passages.tolist(), is_query=False)
        teacher = None if lists is None else torch.from_numpy(lists.teacher[chosen[:, None], ways])
        # A passage that answers the question is never a negative.
        same = torch.from_numpy(training_set.positive[chosen][:, None] == passages[None, :])
        return loss_of(Step(queries, documents, torch.arange(len(chosen)) * n_ways, same, teacher, step))

    return fit(tower, loss, n_steps=n_steps, lr=lr)


TEMPERATURE = 0.05
TEACHER_TEMPERATURE = 0.02  # teacher scores are cosines and lie close together
NEVER = 1 << 40  # a step that is never reached
OBJECTIVES = ("maxsim", "xtr", "unmasked", "m3", "triples", "lists")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a tower is trained. All recipes see the same batches."""

    objective: str = "maxsim"
    k: int = 32  # rows that a query row retrieves of all rows of a batch; for xtr
    temperature: float = TEMPERATURE
    fixed: int = 0  # rows per document; 0: one for each token
    distil: bool = True  # whether m3 also learns from the sum of its kinds
    masks: int = 0  # fill queries with [MASK] to this many tokens; 0: do not

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ConfigError(f"unknown objective {self.objective!r}; choose one of {', '.join(OBJECTIVES)}")


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The embeddings of one step. Passages are ordered list by list, the answer first in each."""

    queries: Encoded
    documents: Encoded
    positive: Tensor  # (queries,) the column of each answer
    same: Tensor  # (queries, documents) whether a passage is the answer
    teacher: Tensor | None  # (queries, ways) scores of each question's list
    number: int


def losses(recipe: Recipe) -> Callable[[Step], Tensor]:
    """The loss function of a step."""
    temperature = recipe.temperature

    def by_tokens(step: Step) -> Tensor:
        assert step.queries.multi_mask is not None
        assert step.documents.multi_mask is not None
        # Without its mask the loss retrieves every row.
        k = recipe.k if recipe.objective == "xtr" else int(step.documents.multi_mask.numel())
        similarities = token_similarities(step.queries, step.documents)
        scores = xtr_scores(similarities, step.queries.multi_mask, step.documents.multi_mask, k=k)
        return contrastive(scores, step.positive, temperature=temperature, excluded=step.same)

    def by_maxsim(step: Step) -> Tensor:
        return contrastive(_maxsim(step), step.positive, temperature=temperature, excluded=step.same)

    def by_triples(step: Step) -> Tensor:
        pairs = query_lists(_maxsim(step))
        return contrastive(pairs, torch.zeros(len(pairs), dtype=torch.int64), temperature=temperature)

    def by_lists(step: Step) -> Tensor:
        assert step.teacher is not None
        scores = _maxsim(step)
        copied = distillation(
            query_lists(scores), step.teacher, temperature=temperature, teacher_scale=1 / TEACHER_TEMPERATURE
        )
        return copied + in_batch(scores, excluded=step.same, temperature=temperature)

    def by_kinds(step: Step) -> Tensor:
        scores = {
            "dense": dense_scores(step.queries, step.documents),
            "sparse": sparse_scores(step.queries, step.documents),
            "multi": _maxsim(step),
        }
        config = M3Config(temperature=temperature, start_step=-1 if recipe.distil else NEVER)
        return m3(scores, step.positive, config, step=step.number, excluded=step.same)[0]

    ways = {"maxsim": by_maxsim, "triples": by_triples, "lists": by_lists, "m3": by_kinds}
    return ways.get(recipe.objective, by_tokens)


def _maxsim(step: Step) -> Tensor:
    return maxsim_scores(step.queries, step.documents, reduce="mean")


DEPTH = 50  # passages retrieved per question


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Passages that a first model retrieves for each question, without the answer."""

    candidates: NDArray[np.int64]  # (queries, depth)
    teacher: NDArray[np.float32]  # (queries, documents)


def retrieved_lists(workbench: Workbench, training_set: Questions, first: Tower) -> Lists:
    queries, documents = (
        first.rows(training_set.queries, is_query=True),
        first.rows(training_set.documents, is_query=False),
    )
    candidates = []
    for number in range(len(training_set)):
        scores = maxsim(np.ascontiguousarray(queries[number], np.float32), documents)
        scores[training_set.positive[number]] = -np.inf
        candidates.append(np.argsort(-scores, kind="stable")[:DEPTH])
    return Lists(np.stack(candidates), teacher_scores(workbench))


def teacher_scores(workbench: Workbench) -> NDArray[np.float32]:
    """(queries, documents): the cosine of the dense vectors plus the mean MaxSim of the multi vectors."""
    encoded = workbench.encoded(TRAIN)
    assert encoded.queries.dense is not None
    assert encoded.documents.dense is not None
    assert encoded.queries.multi is not None
    n_rows = np.diff(encoded.queries.multi.offsets)[:, None]
    together = encoded.queries.dense @ encoded.documents.dense.T + workbench.maxsim(encoded) / n_rows
    return np.asarray(together, np.float32)
