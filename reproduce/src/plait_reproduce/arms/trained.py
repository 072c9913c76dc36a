"""Arms that train a small tower over a frozen encoder and measure it. They import torch when they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plait.codec.pooling import Pooling, pool
from plait.embeddings import Embeddings, MultiVectors
from plait.scoring.maxsim import maxsim, top_k
from plait_reproduce.datasets import CutSet, in_hash_order
from plait_reproduce.encoded_set import DEPTH, EncodedSet, Ranked, measured
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

if TYPE_CHECKING:
    from plait_reproduce.training.recipes import Recipe
    from plait_reproduce.training.towers import Tower

SETS = ("squad-train", "squad-test", "climate-small")
TEST, OTHER = "squad-test", "climate-small"
DEV_SHARE = 3  # one test query in DEV_SHARE chooses the learning rate and is not measured
SIZES = (3, 10, 30, 100, 1000)  # k'
JUDGED = 3  # of some 40,000 rows: the same share as 40,000 of the 600 million of MS MARCO
RANKS = (1, 3, 10, 30, 100)

Each = dict[str, dict[str, float]]


def tokens(workbench: Workbench, settings: Settings) -> Outcome:
    """A tower of token rows under exact MaxSim (`full/...`) and under XTR's scoring (`filling@k'/...`). `gold@r` and
    `same@r` are the shares of rows up to rank r that belong to the answer, and that are the same token. Settings:
    recipe, seed."""
    tower, facts = chosen_tower(workbench, settings)
    encoded = encoded_by(workbench, tower, TEST, part="test")
    each = labelled(encoded, "full", exact(encoded))
    rows, owners = np.asarray(encoded.document_rows.values, np.float32), owners_of(encoded.document_rows)
    query_tokens, document_tokens = token_ids(workbench, TEST, part="test")
    numbers = {id: number for number, id in enumerate(encoded.document_ids)}
    rankings: dict[str, list[Ranked]] = {}
    for number, query in enumerate(encoded.query_ids):
        neighbours = nearest(encoded.query_rows(number), rows, owners, max(SIZES))
        for size in SIZES:
            for filling in FILLINGS if size == JUDGED else FILLINGS[:1]:
                rankings.setdefault(f"{filling}@{size}", []).append(neighbours.ranked(size, filling, DEPTH))
        answers = [numbers[id] for id, grade in encoded.texts.qrels[query].items() if grade > 0]
        marked = {"gold": np.isin(neighbours.owners, answers),
                  "same": document_tokens[neighbours.rows] == query_tokens[number][:, None]}  # fmt: skip
        for kind, marks in marked.items():
            for rank, share in zip(RANKS, shares(marks, RANKS), strict=True):
                each.setdefault(f"{kind}@{rank}", {})[query] = share
    for label, ranked_ in rankings.items():
        each.update(labelled(encoded, label, ranked_))
    return Outcome(each, {**facts, "rows": len(rows)})


def fixed(workbench: Workbench, settings: Settings) -> Outcome:
    """A tower under exact MaxSim, on the set it was trained for (`here/...`) and on another (`there/...`). `pooled`
    reduces the document rows after training. Settings: recipe, seed, pooled (way and number, or None)."""
    tower, facts = chosen_tower(workbench, settings)
    each: Each = {}
    for label, name, part in (("here", TEST, "test"), ("there", OTHER, "all")):
        encoded = encoded_by(workbench, tower, name, part=part)
        if settings["pooled"]:
            rows = reduced(encoded.document_rows, *settings["pooled"])
            documents = Embeddings(dense=None, sparse=None, multi=rows)
            encoded = EncodedSet(encoded.texts, documents, encoded.queries, encoded.owners, "")
        each.update(labelled(encoded, label, exact(encoded)))
        facts[f"rows {label}"] = len(encoded.document_rows.values) / len(encoded.document_rows)
    return Outcome(each, facts)


def masked(workbench: Workbench, settings: Settings) -> Outcome:
    """A tower under exact MaxSim, with queries filled as in its recipe (`own/...`), and with the query's tokens only
    (`bare/...`). Settings: recipe, seed."""
    tower, facts = chosen_tower(workbench, settings)
    each: Each = {}
    for label, masks in (("own", settings["recipe"].get("masks", 0)), ("bare", 0)):
        encoded = encoded_by(workbench, tower, TEST, part="test", masks=masks)
        each.update(labelled(encoded, label, exact(encoded)))
    return Outcome(each, facts)


def embeddings(workbench: Workbench, settings: Settings) -> Outcome:
    """A tower with all three kinds of embeddings, each alone (`dense/...`). Settings: recipe, seed."""
    tower, facts = chosen_tower(workbench, settings)
    encoded = encoded_by(workbench, tower, TEST, part="test")
    each: Each = {}
    for name, scores in _kinds(workbench, tower, "test").items():
        each.update(labelled(encoded, name, ranked(scores)))
    return Outcome(each, facts)


def _kinds(workbench: Workbench, tower: Tower, part: str) -> dict[str, NDArray[np.float32]]:
    from plait_reproduce.training.questions import states_of
    from plait_reproduce.training.towers import kind_scores

    queries, documents = states_of(workbench, TEST)
    return kind_scores(tower, queries.some(part_places(workbench.texts(TEST), part)), documents)


def chosen_tower(workbench: Workbench, settings: Settings) -> tuple[Tower, dict[str, float]]:
    """The tower of a recipe and a seed, with the learning rate that dev queries choose with seed 0."""
    from plait_reproduce.training.recipes import RATES, Recipe, trained

    recipe = Recipe(**settings["recipe"])
    on_dev = {lr: dev_quality(workbench, recipe, lr) for lr in RATES}
    lr = max(RATES, key=lambda value: on_dev[value])
    tower = trained(workbench, recipe, seed=settings["seed"], lr=lr)
    return tower, {"rate": lr, **{f"dev at {rate:g}": value for rate, value in on_dev.items()}}


def dev_quality(workbench: Workbench, recipe: Recipe, lr: float) -> float:
    """nDCG@10 over dev queries with seed 0, by the scoring of the recipe: retrieved tokens for XTR's loss, the mean of
    all kinds for M3's, else exact MaxSim; saved."""
    from plait_reproduce.training.recipes import key_of, trained

    def make() -> dict[str, NDArray[Any]]:
        tower = trained(workbench, recipe, seed=0, lr=lr)
        encoded = encoded_by(workbench, tower, TEST, part="dev", masks=recipe.masks)
        if recipe.objective == "m3":
            ways = [ranked(scores) for scores in _kinds(workbench, tower, "dev").values()]
        else:
            ways = [by_retrieved(encoded) if recipe.objective in ("xtr", "unmasked") else exact(encoded)]
        values = [value for rankings in ways for value in labelled(encoded, "dev", rankings)["dev/nDCG@10"].values()]
        return {"value": np.mean(values, keepdims=True)}

    key = {**key_of(workbench, recipe, seed=0, lr=lr), "test": workbench.key(TEST), "share": DEV_SHARE, "by": "own"}
    return float(workbench.arrays.get("dev", key, make)["value"][0])


def encoded_by(workbench: Workbench, tower: Tower, name: str, *, part: str, masks: int = 0) -> EncodedSet:
    """A set as a tower's rows, with the queries of a part (dev, test or all) filled to `masks` tokens."""
    from plait_reproduce.training.questions import states_of

    queries, documents = states_of(workbench, name, masks=masks)
    texts = workbench.texts(name)
    query_numbers = part_places(texts, part)
    chosen = [list(texts.queries)[query] for query in query_numbers]
    part_texts = CutSet(name, texts.documents, {id: texts.queries[id] for id in chosen},
                  {id: texts.qrels[id] for id in chosen})  # fmt: skip
    return EncodedSet(
        part_texts,
        Embeddings(dense=None, sparse=None, multi=tower.rows(documents, is_query=False)),
        Embeddings(dense=None, sparse=None, multi=tower.rows(queries.some(query_numbers), is_query=True)),
        np.arange(len(texts.documents)),
        "",
    )


def part_places(texts: CutSet, part: str) -> list[int]:
    """The positions of the queries of a part."""
    dev = set(in_hash_order(texts.queries)[::DEV_SHARE])
    return [number for number, id in enumerate(texts.queries) if part == "all" or (id in dev) == (part == "dev")]


def token_ids(workbench: Workbench, name: str, *, part: str) -> tuple[list[NDArray[np.int32]], NDArray[np.int32]]:
    """The token of each row: per query, and of all documents joined."""
    from plait_reproduce.training.questions import states_of

    queries, documents = states_of(workbench, name)
    owned = [queries.of(query) for query in part_places(workbench.texts(name), part)]
    return [queries.ids[rows][queries.kept[rows]] for rows in owned], documents.ids[documents.kept]


def exact(encoded: EncodedSet) -> list[Ranked]:
    """The ranking of exhaustive MaxSim for each query."""
    queries = range(len(encoded.query_ids))
    return ranked(np.stack([maxsim(encoded.query_rows(query), encoded.document_rows) for query in queries]))


def by_retrieved(encoded: EncodedSet) -> list[Ranked]:
    """The ranking of XTR's scoring for each query at the judged k'."""
    rows, owners = np.asarray(encoded.document_rows.values, np.float32), owners_of(encoded.document_rows)
    return [
        nearest(encoded.query_rows(query), rows, owners, JUDGED).ranked(JUDGED, "last", DEPTH)
        for query in range(len(encoded.query_ids))
    ]


def ranked(scores: NDArray[np.float32]) -> list[Ranked]:
    """Scores (queries, documents) as rankings."""
    orders = [np.argsort(-row, kind="stable")[:DEPTH] for row in scores]
    return [(order, row[order]) for order, row in zip(orders, scores, strict=True)]


def reduced(rows: MultiVectors, way: str, n_rows: int) -> MultiVectors:
    """At most `n_rows` rows per document: means of equal segments, the first rows, or Ward pooling."""
    if way == "ward":
        return pool(rows, Pooling(fixed=n_rows))
    items = []
    for number in range(len(rows)):
        document = np.asarray(rows[number], np.float32)
        if way == "segments":
            document = np.stack([part.mean(axis=0) for part in np.array_split(document, min(n_rows, len(document)))])
            document = document / np.maximum(np.linalg.norm(document, axis=1, keepdims=True), 1e-9)
        items.append(document[:n_rows])
    return MultiVectors.from_items(items)


def labelled(encoded: EncodedSet, label: str, rankings: list[Ranked]) -> Each:
    """Each query's measures as `label/measure`."""
    return {f"{label}/{name}": values for name, values in measured(encoded, encoded.run_of_found(rankings)).items()}


# The value of a similarity that was not retrieved: the last retrieved one; a constant; or none, where a document's
# score is the mean of its retrieved similarities.
FILLINGS = ("last", "0", "0.2", "none")


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The best document rows for each query row, best first."""

    similarities: NDArray[np.float32]  # (n_query, depth)
    rows: NDArray[np.int64]  # (n_query, depth) row numbers
    owners: NDArray[np.int64]  # (n_query, depth) the document of each row

    def ranked(self, n_tokens: int, filling: str, k: int) -> Ranked:
        """The k best items by scores from each query row's first `n_tokens` rows."""
        retrieved, owners = self.similarities[:, :n_tokens], self.owners[:, :n_tokens]
        items, positions = np.unique(owners, return_inverse=True)
        best = np.full((len(retrieved), len(items)), -np.inf, np.float32)
        query_rows = np.repeat(np.arange(len(retrieved)), retrieved.shape[1])
        np.maximum.at(best, (query_rows, positions.reshape(-1)), retrieved.reshape(-1))
        scores = np.ascontiguousarray(_filled(best, retrieved[:, -1], filling), np.float32)
        order = top_k(scores, k)
        return items[order], scores[order]


def nearest(query: NDArray[np.float32], rows: NDArray[np.float32], owners: NDArray[np.int64], depth: int) -> Nearest:
    """The `depth` best of rows (rows, dim) for each query row."""
    similarities = query @ rows.T
    depth = min(depth, len(rows))
    top_rows = np.argpartition(-similarities, depth - 1, axis=1)[:, :depth]
    best = np.take_along_axis(similarities, top_rows, axis=1)
    order = np.argsort(-best, axis=1, kind="stable")
    top_rows = np.take_along_axis(top_rows, order, axis=1).astype(np.int64)
    return Nearest(np.take_along_axis(best, order, axis=1), top_rows, owners[top_rows])


def owners_of(rows: MultiVectors) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(rows)), np.diff(rows.offsets))


def shares(marked: NDArray[np.bool_], ranks: Sequence[int]) -> list[float]:
    """The share of marked rows (n_query, depth) among the first r, over query rows."""
    return [float(marked[:, :rank].mean()) for rank in ranks]


def _filled(best: NDArray[np.float32], last: NDArray[np.float32], filling: str) -> NDArray[np.float32]:
    """Means over query rows of (n_query, items), with -inf replaced."""
    seen = np.isfinite(best)
    if filling == "none":
        return np.asarray(np.where(seen, best, 0).sum(axis=0) / seen.sum(axis=0), np.float32)
    fill = last[:, None] if filling == "last" else np.float32(filling)
    return np.asarray(np.where(seen, best, fill).mean(axis=0), np.float32)
