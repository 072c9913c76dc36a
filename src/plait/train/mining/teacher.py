"""Teachers: what scores a query and a passage. Scores are kept on disk by what was scored and by whom, so that a run
that was stopped, or a later round, asks for what is new alone."""

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
from plait.train.torch_encoder import encoder_of

Pair = tuple[str, str]  # query, passage
_EXAMPLES = 16  # scored and kept together


class Scorer(Protocol):
    """A teacher."""

    @property
    def fingerprint(self) -> str:
        """Names the weights and how texts are read; scores are kept under it."""

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """One score for each pair; higher is better."""


class EncoderScorer:
    """Any encoder of plait: inner products of its dense strand, or MaxSim where it has none."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def fingerprint(self) -> str:
        return f"encoder {self._encoder.fingerprint}"

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        queries = list(dict.fromkeys(query for query, _ in pairs))
        passages = list(dict.fromkeys(passage for _, passage in pairs))
        of_queries, of_passages = self._encoder.encode_queries(queries), self._encoder.encode_documents(passages)
        left = {query: place for place, query in enumerate(queries)}
        right = {passage: place for place, passage in enumerate(passages)}
        if of_queries.dense is not None and of_passages.dense is not None:
            scores = of_queries.dense @ of_passages.dense.T
        elif of_queries.multi is not None and of_passages.multi is not None:
            multi = of_passages.multi
            scores = np.stack([maxsim(of_queries.multi[place], multi) for place in range(len(queries))])
        else:
            raise ModelError("the teacher has neither a dense nor a multi strand; it cannot score")
        return np.array([scores[left[query], right[passage]] for query, passage in pairs], np.float32)


class CrossEncoderScorer:
    """A folder of a sequence classifier with one output, read by transformers: query and passage in one text."""

    def __init__(self, folder: str | Path, *, length: int = 256, batch: int = 32) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self._torch, self._length, self._batch = torch, length, batch
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder))
            self._model: Any = AutoModelForSequenceClassification.from_pretrained(str(folder)).eval()
        except (OSError, ValueError) as error:
            raise ModelError(f"{folder} is not a cross-encoder that transformers can read: {error}") from error
        if self._model.config.num_labels != 1:
            raise ModelError(f"{folder} has {self._model.config.num_labels} outputs; a teacher must have one")
        self._fingerprint = f"cross-encoder {weights_digest(Path(folder))} {length}"

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        scores = np.zeros(len(pairs), np.float32)
        # Pairs of like length go together, so that little is padding.
        order = sorted(range(len(pairs)), key=lambda place: sum(map(len, pairs[place])))
        for start in range(0, len(order), self._batch):
            own = order[start : start + self._batch]
            read = self._tokenizer(
                [pairs[place][0] for place in own],
                [pairs[place][1] for place in own],
                truncation="only_second",
                max_length=self._length,
                padding=True,
                return_tensors="pt",
            )
            with self._torch.no_grad():
                scores[own] = self._model(**read).logits[:, 0].float().numpy()
        return scores


class CachedScorer:
    """A teacher that is asked once for each pair. What it has answered is on disk before the next question."""

    def __init__(self, scorer: Scorer, path: Path) -> None:
        self._scorer = scorer
        self._connection = sqlite3.connect(path)
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS scores (teacher TEXT, query BLOB, passage BLOB, score REAL, "
            "PRIMARY KEY (teacher, query, passage)) WITHOUT ROWID"
        )
        self.n_asked = 0  # pairs that were not known

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
            self.n_asked += len(new)
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
    while block := list(islice(rest, _EXAMPLES)):
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


def without_false_negatives(example: Example, *, margin: float, kind: str) -> Example:
    """The example without negatives that the teacher puts too near its best positive: above the positive's score less
    `margin` (absolute), or above (1 - margin) times it (percent; for a score below 0, that much further down)."""
    if example.positive_scores is None or example.negative_scores is None or not example.positives:
        return example
    best = max(example.positive_scores)
    limit = best - margin if kind == "absolute" else best - margin * abs(best)
    kept = [place for place, score in enumerate(example.negative_scores) if score <= limit]
    return replace(
        example,
        negatives=tuple(example.negatives[place] for place in kept),
        negative_scores=tuple(example.negative_scores[place] for place in kept),
    )


def teacher_of(config: MiningConfig) -> Scorer:
    """The teacher that a recipe names."""
    if config.teacher_kind == "cross-encoder":
        if (Path(config.teacher) / CARD_NAME).is_file():
            return load_cross(config.teacher)
        return CrossEncoderScorer(config.teacher, length=config.teacher_length)
    return EncoderScorer(encoder_of(config.teacher, length=config.teacher_length))
