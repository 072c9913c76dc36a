"""`CrossEncoder`: a folder of a cross-encoder at work. Reads pairs, runs those of like length together, gives scores in
the order of the pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.encode.batches import by_length, pad
from plait.encode.load import BUNDLED, file_of, open_session, open_tokenizer, record_of
from plait.encode.model_card import CARD_NAME
from plait.encode.onnx import Session
from plait.errors import ConfigError, ModelError
from plait.rerank.cross_card import CrossCard, read_cross_card
from plait.rerank.pairs import Pair, PairReader

# How many tokens go through the model at once. More gains nothing on a processor and falls out of the cache.
BATCH_TOKENS = 4096
OUTPUT = "score"
DEFAULT_CROSS = "plait-cross-small"

OnBatch = Callable[[int, int], None]  # pairs done, pairs in all


class PairScorer(Protocol):
    """What the rest of plait asks of a cross-encoder; any object of this shape will do."""

    @property
    def fingerprint(self) -> str:
        """Names the weights and the reading of pairs; scores are kept under it."""

    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        """One score for each pair; higher is better."""


class CrossEncoder:
    """Pairs to scores with onnxruntime; `load_cross` makes one from a folder."""

    def __init__(self, card: CrossCard, reader: PairReader, session: Session) -> None:
        self._card, self._reader, self._session = card, reader, session
        self._inputs = {given.name for given in session.get_inputs()}

    def __repr__(self) -> str:
        return f"CrossEncoder({self.fingerprint!r})"

    @property
    def card(self) -> CrossCard:
        return self._card

    @property
    def name(self) -> str:
        return self._card.name

    @property
    def fingerprint(self) -> str:
        return self._card.fingerprint

    def score(
        self, pairs: Sequence[Pair], *, batch_tokens: int = BATCH_TOKENS, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """One score for each (query, document); `on_batch` is told after each batch how many pairs are done."""
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens is {batch_tokens}; a batch needs at least one token")
        read = self._reader.read(pairs)
        scores = np.zeros(len(pairs), np.float32)
        n_done = 0
        for items in by_length([len(ids) for ids in read.ids], n_tokens=batch_tokens):
            scores[items] = self._forward([read.ids[item] for item in items], [read.sides[item] for item in items])
            n_done += len(items)
            if on_batch is not None:
                on_batch(n_done, len(pairs))
        return scores

    def _forward(self, ids: Sequence[NDArray[np.int64]], sides: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        padded, mask = pad(ids)
        feed = {"input_ids": padded, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            feed["token_type_ids"] = pad(sides)[0]
        found = self._session.run([OUTPUT], feed)[0]
        if found.shape != (len(ids),):
            raise ModelError(f"the graph of {self.name} gives {OUTPUT!r} of shape {found.shape} for {len(ids)} pairs")
        return found


def load_cross(
    model: str | Path | None = None, *, precision: str | None = None, n_threads: int | None = None
) -> CrossEncoder:
    """The cross-encoder in a folder, or the bundled one. `precision` is int8 if the folder has that, else its first."""
    folder = find_cross(model)
    card = read_cross_card(folder)
    if precision is None:
        precision = "int8" if "int8" in card.precisions else next(iter(card.precisions), "int8")
    graph = file_of(folder, record_of(card.precisions, card.name, folder, precision))
    reader = PairReader(open_tokenizer(file_of(folder, card.tokenizer)), card)
    # These graphs come from exporters, which leave fusing to the runtime.
    session = open_session(graph, n_threads, optimise=True)
    outputs = [found.name for found in session.get_outputs()]
    if OUTPUT not in outputs:
        raise ModelError(f"{graph} has the outputs {outputs}; that of a cross-encoder is called {OUTPUT!r}")
    return CrossEncoder(card, reader, session)


def find_cross(model: str | Path | None = None) -> Path:
    """The folder of a cross-encoder."""
    if model is not None:
        bundled = BUNDLED / str(model)
        return bundled if Path(model).name == str(model) and (bundled / CARD_NAME).is_file() else Path(model)
    if (BUNDLED / DEFAULT_CROSS / CARD_NAME).is_file():
        return BUNDLED / DEFAULT_CROSS
    raise ModelError(
        "no cross-encoder comes with this plait, and none was named; name the folder of one (--rerank-model FOLDER, or "
        "rerank=FOLDER). Train one with `plait train recipes/cross-cls.toml`, or make a folder of a reranker of "
        "transformers with `plait export`: docs/cross.md shows both"
    )
