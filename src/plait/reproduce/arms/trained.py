"""Arms that train a small tower over a frozen encoder and measure what came of it. torch is imported when one runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plait.codec.pooling import Pooling, pool
from plait.evaluate.measures import measure_each
from plait.reproduce.arms.measuring import DEPTH, Ranked
from plait.reproduce.arms.retrieved import FILLINGS, nearest, owners_of, shares
from plait.reproduce.encoded import EncodedSet
from plait.reproduce.experiment import Outcome, Settings
from plait.reproduce.sets import in_hash_order
from plait.reproduce.workbench import Workbench
from plait.scoring.maxsim import maxsim
from plait.strands import MultiVectors, Strands

if TYPE_CHECKING:
    from plait.reproduce.train.losses import Recipe
    from plait.reproduce.train.towers import Tower

SETS = ("squad-train", "squad-test", "climate-small")
TEST, OTHER = "squad-test", "climate-small"
DEV_SHARE = 3  # one in so many of the test set's queries chooses the rate, and is not measured
MEASURES = ("nDCG@10", "R@100")
SIZES = (5, 20, 80, 320, 1280)  # k': about 1e-4 to 3e-2 of all rows
RANKS = (1, 3, 10, 30, 100)


def tokens(workbench: Workbench, settings: Settings) -> Outcome:
    """A tower of token rows under exact MaxSim (`full/...`) and under XTR's scoring (`filling@k'/...`). `gold@r` and
    `same@r` are the shares of rows up to rank r that are the answer's, and that are the query row's own token.
    Settings: recipe, seed."""
    tower, facts = chosen_tower(workbench, settings)
    encoded = encoded_by(workbench, tower, TEST)
    each = measured_on_test(encoded, "full", exact(encoded))
    queries, documents = token_ids(workbench, TEST)
    rows, owners = np.asarray(encoded.document_rows.values, np.float32), owners_of(encoded.document_rows)
    numbers = {id: number for number, id in enumerate(encoded.document_ids)}
    found: dict[tuple[str, int], list[Ranked]] = {}
    marks: dict[str, dict[str, float]] = {f"{kind}@{rank}": {} for kind in ("gold", "same") for rank in RANKS}
    for number, query in enumerate(encoded.query_ids):
        own = nearest(encoded.query_rows(number), rows, owners, max(SIZES))
        for size in SIZES:
            for filling in FILLINGS:
                found.setdefault((filling, size), []).append(own.ranked(size, filling, DEPTH))
        gold = np.isin(own.owners, [numbers[id] for id, grade in encoded.texts.qrels[query].items() if grade > 0])
        same = documents[own.rows] == queries[number][:, None]
        for kind, values in zip(("gold", "same"), shares((gold, same), RANKS), strict=True):
            for rank, value in zip(RANKS, values, strict=True):
                marks[f"{kind}@{rank}"][query] = value
    for (filling, size), own_found in found.items():
        each.update(measured_on_test(encoded, f"{filling}@{size}", own_found))
    kept = judged_queries(encoded)
    each.update({name: {query: values[query] for query in kept} for name, values in marks.items()})
    return Outcome(each, {**facts, "rows": len(rows)})


def fixed(workbench: Workbench, settings: Settings) -> Outcome:
    """A tower under exact MaxSim, on the set that it learned for (`here/...`) and on another (`there/...`). `pooled`
    reduces the rows of documents after training. Settings: recipe, seed, pooled (way and number, or None)."""
    tower, facts = chosen_tower(workbench, settings)
    each: dict[str, dict[str, float]] = {}
    for label, name in (("here", TEST), ("there", OTHER)):
        encoded = encoded_by(workbench, tower, name)
        if settings.get("pooled"):
            encoded = with_rows(encoded, reduced(encoded.document_rows, *settings["pooled"]))
        measured = measured_on_test if label == "here" else _measured
        each.update(measured(encoded, label, exact(encoded)))
        facts[f"rows {label}"] = len(encoded.document_rows.values) / len(encoded.document_rows)
    return Outcome(each, facts)


def strands(workbench: Workbench, settings: Settings) -> Outcome:
    """A tower of three strands, each by itself. Settings: recipe, seed."""
    from plait.reproduce.train.data import states_of
    from plait.reproduce.train.strands import strand_scores

    tower, facts = chosen_tower(workbench, settings)
    encoded = encoded_by(workbench, tower, TEST)
    each: dict[str, dict[str, float]] = {}
    for name, scores in strand_scores(tower, *states_of(workbench, TEST)).items():
        each.update(measured_on_test(encoded, name, ranked(scores)))
    return Outcome(each, facts)


def chosen_tower(workbench: Workbench, settings: Settings) -> tuple[Tower, dict[str, float]]:
    """The tower of a recipe and a seed, at the rate that dev queries choose with seed 0."""
    from plait.reproduce.train.losses import Recipe
    from plait.reproduce.train.recipes import RATES, trained

    recipe = Recipe(**settings["recipe"])
    on_dev = {lr: dev_quality(workbench, recipe, lr) for lr in RATES}
    lr = max(RATES, key=lambda own: on_dev[own])
    tower = trained(workbench, recipe, seed=settings["seed"], lr=lr)
    return tower, {"rate": lr, **{f"dev at {own:g}": value for own, value in on_dev.items()}}


def dev_quality(workbench: Workbench, recipe: Recipe, lr: float) -> float:
    """nDCG@10 of exact MaxSim over dev queries, with seed 0; kept."""
    from dataclasses import asdict

    from plait.reproduce.train.recipes import VERSION, trained

    def make() -> dict[str, NDArray[np.float64]]:
        encoded = encoded_by(workbench, trained(workbench, recipe, seed=0, lr=lr), TEST)
        run = encoded.run_of_found(exact(encoded))
        own = measure_each(run, encoded.texts.qrels, ("nDCG@10",))["nDCG@10"]
        return {"value": np.array([np.mean([own[query] for query in dev_queries(encoded)])])}

    key: dict[str, Any] = {"recipe": asdict(recipe), "lr": lr, "tier": workbench.tier, "version": VERSION}
    key["sets"] = [workbench.key(name) for name in SETS[:2]]
    return float(workbench.arrays.get("dev", key, make)["value"][0])


def encoded_by(workbench: Workbench, tower: Tower, name: str) -> EncodedSet:
    """A set as a tower's rows."""
    from plait.reproduce.train.data import states_of

    queries, documents = states_of(workbench, name)
    texts = workbench.texts(name)
    return EncodedSet(
        texts,
        Strands(dense=None, sparse=None, multi=tower.rows(documents, is_query=False)),
        Strands(dense=None, sparse=None, multi=tower.rows(queries, is_query=True)),
        np.arange(len(texts.documents)),
        "",
    )


def with_rows(encoded: EncodedSet, rows: MultiVectors) -> EncodedSet:
    documents = Strands(dense=None, sparse=None, multi=rows)
    return EncodedSet(encoded.texts, documents, encoded.queries, encoded.owners, "")


def token_ids(workbench: Workbench, name: str) -> tuple[list[NDArray[np.int32]], NDArray[np.int32]]:
    """The token of each row: of each query, and of all documents end to end."""
    from plait.reproduce.train.data import states_of

    queries, documents = states_of(workbench, name)
    each = [queries.ids[queries.of(item)][queries.kept[queries.of(item)]] for item in range(len(queries))]
    return each, documents.ids[documents.kept]


def exact(encoded: EncodedSet) -> list[Ranked]:
    """What exhaustive MaxSim finds for each query."""
    rows = encoded.document_rows
    scores = np.stack([maxsim(encoded.query_rows(query), rows) for query in range(len(encoded.query_ids))])
    return ranked(scores)


def ranked(scores: NDArray[np.float32]) -> list[Ranked]:
    """Scores (queries, documents) as rankings."""
    orders = [np.argsort(-own, kind="stable")[:DEPTH] for own in scores]
    return [(order, own[order]) for order, own in zip(orders, scores, strict=True)]


def reduced(rows: MultiVectors, way: str, n_rows: int) -> MultiVectors:
    """At most so many rows of each document: means of equal segments, the first ones, or pooled by Ward's method."""
    if way == "ward":
        return pool(rows, Pooling(fixed=n_rows))
    items = []
    for number in range(len(rows)):
        own = np.asarray(rows[number], np.float32)
        if way == "segments":
            own = np.stack([part.mean(axis=0) for part in np.array_split(own, min(n_rows, len(own)))])
            own = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-9)
        items.append(own[:n_rows])
    return MultiVectors.from_items(items)


def dev_queries(encoded: EncodedSet) -> list[str]:
    return in_hash_order(encoded.query_ids)[::DEV_SHARE]


def judged_queries(encoded: EncodedSet) -> list[str]:
    """The queries that nothing was chosen with."""
    dev = set(dev_queries(encoded))
    return [query for query in encoded.query_ids if query not in dev]


def measured_on_test(encoded: EncodedSet, label: str, found: list[Ranked]) -> dict[str, dict[str, float]]:
    """`label/measure` of each test query."""
    kept = judged_queries(encoded)
    every = _measured(encoded, label, found)
    return {name: {query: own[query] for query in kept} for name, own in every.items()}


def _measured(encoded: EncodedSet, label: str, found: list[Ranked]) -> dict[str, dict[str, float]]:
    own: Mapping[str, Mapping[str, float]] = measure_each(encoded.run_of_found(found), encoded.texts.qrels, MEASURES)
    return {f"{label}/{name}": dict(values) for name, values in own.items()}
