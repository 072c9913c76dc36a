"""Evaluation of a model in training: part of a corpus is indexed with it, and judged queries are searched. The index is
plait's own and is searched with the mode that a user would choose, exactly if the mode can."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plait.encode.protocol import Encoder
from plait.errors import ConfigError, InputError
from plait.evaluate import load_beir, measure, rank_queries
from plait.index import open_index
from plait.readers import documents_from
from plait.records import Document
from plait.search.modes import find_mode
from plait.train.recipe import EvaluationConfig, Recipe
from plait.train.search_modes import IMPUTED, check_heads


@dataclass(frozen=True, slots=True)
class DevSet:
    """Queries with judgements, and a corpus that includes every judged document."""

    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    documents: list[Document]


def check_modes(recipe: Recipe, heads: Collection[str]) -> None:
    """ConfigError if the model in training would be searched, in evaluation or mining, with a mode for which it has no
    head."""
    mining = recipe.mining
    searchers = [mining.first_searcher, *([mining.later_searcher] if mining.rounds > 1 else [])]
    modes = {"evaluation": recipe.evaluation.mode if recipe.evaluation.data else ""}
    if mining.corpus and "model" in searchers:
        modes["mining"] = mining.mode
    for section, mode in modes.items():
        try:
            if mode:
                check_heads(mode, heads)
        except ConfigError as error:
            raise ConfigError(f"{recipe.location(section).where('mode')}: {error}") from None


def load_dev_set(config: EvaluationConfig, *, seed: int) -> DevSet:
    """The first queries of the split, their judged documents, and random other documents up to `n_documents`."""
    beir = load_beir(config.data, config.split)
    if beir.corpus is None:
        raise InputError(f"{config.data} has no corpus; evaluation needs one to search in")
    ids = list(beir.queries)[: config.n_queries or None]
    qrels = {id: beir.qrels[id] for id in ids}
    judged = {document for of_query in qrels.values() for document in of_query}
    others = [document.id for document in documents_from([beir.corpus]) if document.id not in judged]
    n_others = max(0, config.n_documents - len(judged)) if config.n_documents else len(others)
    order = np.random.default_rng(seed).permutation(len(others))[:n_others]
    wanted = judged | {others[number] for number in order.tolist()}
    documents = [document for document in documents_from([beir.corpus]) if document.id in wanted]
    return DevSet({id: beir.queries[id] for id in ids}, qrels, documents)


def evaluate(encoder: Encoder, dev_set: DevSet, config: EvaluationConfig, folder: Path, *, mode: str) -> float:
    """The recipe's measure of a search with `mode`. `folder` is for a temporary index and is removed. A mode that does
    not score every passage, such as `xtr`, is searched with its default parameters."""
    exact = find_mode(mode).exact
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with open_index(folder, create=True, encoder=encoder) as index:
            index.add(dev_set.documents)
            if mode in IMPUTED:
                index.compact()
            ranked = rank_queries(index, list(dev_set.queries.values()), config.k, mode=mode, exact=exact)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    run = dict(zip(dev_set.queries, ranked, strict=True))
    return measure(run, dev_set.qrels, [config.measure])[config.measure]
