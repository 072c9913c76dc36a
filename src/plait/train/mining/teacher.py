"""Teachers score a query and a passage. Scores are cached on disk by teacher and texts, so a resumed run or a later
round computes new ones only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.encode.model_card import CARD_NAME
from plait.encode.protocol import Encoder
from plait.errors import ModelError
from plait.rerank.cross_encoder import load_cross
from plait.scoring.maxsim import maxsim
from plait.train.checkpoint import weights_digest
from plait.train.data.example import Example, digest
from plait.train.mining.config import MiningConfig
from plait.train.torch_encoder import open_encoder

Pair = tuple[str, str]  # query, passage
BLOCK_EXAMPLES = 16  # scored and cached together


class Scorer(Protocol):
    """A teacher."""

    @property
    def fingerprint(self) -> str:
        """Identifies the weights and the tokenization; it is part of the cache key."""

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """One score for each pair; higher is better."""


class EncoderScorer:
    """An encoder of plait: inner products of dense vectors, or MaxSim if it has none."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def fingerprint(self) -> str:
        return f"encoder {self._encoder.fingerprint}"

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        queries = list(dict.fromkeys(query for query, _ in pairs))
        passages = list(dict.fromkeys(passage for _, passage in pairs))
        query_vectors, vectors = self._encoder.encode_queries(queries), self._encoder.encode_documents(passages)
        rows = {query: row for row, query in enumerate(queries)}
        columns = {passage: column for column, passage in enumerate(passages)}
        if query_vectors.dense is not None and vectors.dense is not None:
            scores = query_vectors.dense @ vectors.dense.T
        elif query_vectors.multi is not None and vectors.multi is not None:
            scores = np.stack([maxsim(query_vectors.multi[row], vectors.multi) for row in range(len(queries))])
        else:
            raise ModelError("the teacher has neither dense nor multi vectors; use an encoder that has one of them")
        return np.array([scores[rows[query], columns[passage]] for query, passage in pairs], np.float32)


class CrossEncoderScorer:
    """A transformers sequence classifier with one output, which reads query and passage together."""

    def __init__(self, folder: str | Path, *, length: int = 256, batch: int = 32) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self._torch, self._length, self._batch = torch, length, batch
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder))
            self._model: Any = AutoModelForSequenceClassification.from_pretrained(str(folder)).eval()
        except (OSError, ValueError) as error:
            raise ModelError(f"{folder} is not a cross-encoder that transformers can load: {error}") from error
        if self._model.config.num_labels != 1:
            raise ModelError(f"{folder} has {self._model.config.num_labels} outputs; a teacher must have one")
        self._fingerprint = f"cross-encoder {weights_digest(Path(folder))} {length}"

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        scores = np.zeros(len(pairs), np.float32)
        # Pairs of similar length are batched together, for little padding.
        order = sorted(range(len(pairs)), key=lambda number: sum(map(len, pairs[number])))
        for start in range(0, len(order), self._batch):
            batch = order[start : start + self._batch]
            tokens = self._tokenizer(
                [pairs[number][0] for number in batch],
                [pairs[number][1] for number in batch],
                truncation="only_second",
                max_length=self._length,
                padding=True,
                return_tensors="pt",
            )
            with self._torch.no_grad():
                scores[batch] = self._model(**tokens).logits[:, 0].float().numpy()
        return scores


class CachedScorer:
    """A teacher that scores each pair once. Scores are on disk before the next call."""

    def __init__(self, scorer: Scorer, path: Path) -> None:
        self._scorer = scorer
        self._connection = sqlite3.connect(path)
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS scores (teacher TEXT, query BLOB, passage BLOB, score REAL, "
            "PRIMARY KEY (teacher, query, passage)) WITHOUT ROWID"
        )
        self.n_computed = 0  # pairs that were not in the cache

    @property
    def fingerprint(self) -> str:
        return self._scorer.fingerprint

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        keys = [(self.fingerprint, digest(query), digest(passage)) for query, passage in pairs]
        known = {key: score for key in dict.fromkeys(keys) if (score := self._known(key)) is not None}
        new = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}
        if new:
            scores = self._scorer.score(list(new.values()))
            known |= {key: float(score) for key, score in zip(new, scores, strict=True)}
            with self._connection:
                rows = [(*key, known[key]) for key in new]
                self._connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?)", rows)
            self.n_computed += len(new)
        return np.array([known[key] for key in keys], np.float32)

    def close(self) -> None:
        self._connection.close()

    def _known(self, key: tuple[str, bytes, bytes]) -> float | None:
        sql = "SELECT score FROM scores WHERE teacher = ? AND query = ? AND passage = ?"
        row = self._connection.execute(sql, key).fetchone()
        return None if row is None else float(row[0])


def with_scores(
    examples: Iterable[Example], scorer: Scorer, *, on_progress: Callable[[int], None] | None = None
) -> Iterator[Example]:
    """Each example with the teacher's score of every passage."""
    rest, n_done = iter(examples), 0
    while block := list(islice(rest, BLOCK_EXAMPLES)):
        pairs = [(one.query, passage.text) for one in block for passage in (*one.positives, *one.negatives)]
        scores = iter(scorer.score(pairs).tolist())
        for one in block:
            yield replace(
                one,
                positive_scores=tuple(islice(scores, len(one.positives))),
                negative_scores=tuple(islice(scores, len(one.negatives))),
            )
        n_done += len(block)
        if on_progress is not None:
            on_progress(n_done)


def drop_false_negatives(example: Example, *, margin: float, kind: str) -> Example:
    """The example without negatives that the teacher scores too close to its best positive: above the positive's score
    minus `margin` (absolute), or minus `margin` times its absolute value (percent)."""
    if example.positive_scores is None or example.negative_scores is None or not example.positives:
        return example
    best = max(example.positive_scores)
    limit = best - margin if kind == "absolute" else best - margin * abs(best)
    below_limit = [number for number, score in enumerate(example.negative_scores) if score <= limit]
    return replace(
        example,
        negatives=tuple(example.negatives[number] for number in below_limit),
        negative_scores=tuple(example.negative_scores[number] for number in below_limit),
    )


def open_teacher(config: MiningConfig) -> Scorer:
    """The teacher that a recipe names."""
    if config.teacher_kind == "cross-encoder":
        if (Path(config.teacher) / CARD_NAME).is_file():
            return load_cross(config.teacher)
        return CrossEncoderScorer(config.teacher, length=config.teacher_length)
    return EncoderScorer(open_encoder(config.teacher, length=config.teacher_length))
