"""Watching a model by searching with it: a part of a corpus is indexed, judged queries are asked, answers are measured.
The index is plait's own, scored exactly, so that the number is the one a user would get."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plait.encode.protocol import Encoder
from plait.errors import InputError
from plait.evaluate import load_beir, measure, rank_queries
from plait.index import open_index
from plait.readers import documents_from
from plait.records import Document
from plait.train.recipe import EvaluationConfig


@dataclass(frozen=True, slots=True)
class Judged:
    """What a model is watched on: some queries, and a corpus that holds all that was judged for them."""

    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    documents: list[Document]


def read_judged(config: EvaluationConfig, *, seed: int) -> Judged:
    """The first queries of the split; the judged documents, and others at random up to the number asked for."""
    beir = load_beir(config.data, config.split)
    if beir.corpus is None:
        raise InputError(f"there is no corpus in {config.data}; evaluation searches one")
    ids = list(beir.queries)[: config.queries or None]
    qrels = {id: beir.qrels[id] for id in ids}
    judged = {document for own in qrels.values() for document in own}
    others = [document.id for document in documents_from([beir.corpus]) if document.id not in judged]
    n_others = max(0, config.documents - len(judged)) if config.documents else len(others)
    order = np.random.default_rng(seed).permutation(len(others))[:n_others]
    wanted = judged | {others[place] for place in order.tolist()}
    documents = [document for document in documents_from([beir.corpus]) if document.id in wanted]
    return Judged({id: beir.queries[id] for id in ids}, qrels, documents)


def evaluate(encoder: Encoder, judged: Judged, config: EvaluationConfig, folder: Path) -> float:
    """The measure of the recipe; `folder` holds the index meanwhile and is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with open_index(folder, create=True, encoder=encoder) as index:
            index.add(judged.documents)
            ranked = rank_queries(index, list(judged.queries.values()), config.k, mode=config.mode, exact=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    run = dict(zip(judged.queries, ranked, strict=True))
    return measure(run, judged.qrels, [config.measure])[config.measure]
