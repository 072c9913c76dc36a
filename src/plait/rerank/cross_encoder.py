"""`CrossEncoder`: the model of a cross-encoder folder. Tokenizes pairs, scores pairs of similar length together, and
returns scores in the order of the pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.checks import as_path
from plait.encode.batches import by_length, pad
from plait.encode.hub_models import cached_model, hub_name
from plait.encode.load import (
    CPU,
    DEFAULT_PRECISION,
    check_device,
    choose_precision,
    comes_with_plait,
    find_hub_model,
    installed_cross_encoders,
    open_session,
    open_tokenizer,
)
from plait.encode.model_files import HashCheck, model_file
from plait.encode.onnx import Session
from plait.encode.shared_models import model_key, shared_model
from plait.errors import ConfigError, ModelError
from plait.rerank.cross_card import SIGMOID, CrossCard, read_cross_card
from plait.rerank.pairs import Pair, PairTokenizer

# Tokens in one forward pass. A larger batch is no faster on a CPU, and no longer fits into its cache.
BATCH_TOKENS = 4096
OUTPUT = "score"  # of the graph
DEFAULT_CROSS = "plait-cross-small"

OnBatch = Callable[[int, int], None]  # pairs done, pairs in all


class PairScorer(Protocol):
    """A cross-encoder, as the rest of plait uses it."""

    @property
    def fingerprint(self) -> str:
        """Identifies the weights and the pair format; stored scores name it."""

    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        """One score for each (query, document); higher is better."""


class CrossEncoder:
    """Scores pairs with onnxruntime. `load_cross` makes one from a folder."""

    def __init__(self, card: CrossCard, tokenizer: PairTokenizer, session: Session) -> None:
        self._card, self._tokenizer, self._session = card, tokenizer, session
        self._input_names = {graph_input.name for graph_input in session.get_inputs()}

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

    def with_card(self, card: CrossCard) -> CrossEncoder:
        """The same graph and tokenizer, with another format of pairs or another activation. The two share the loaded
        model."""
        return CrossEncoder(card, self._tokenizer.with_model(card), self._session)

    def score(
        self, pairs: Sequence[Pair], *, batch_tokens: int = BATCH_TOKENS, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """One score for each (query, document); `on_batch` is called after each batch."""
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens is {batch_tokens}; it must be at least 1")
        tokens = self._tokenizer.tokenize(pairs)
        scores = np.zeros(len(pairs), np.float32)
        n_done = 0
        for items in by_length([len(ids) for ids in tokens.ids], n_tokens=batch_tokens):
            scores[items] = self._forward(
                [tokens.ids[item] for item in items], [tokens.type_ids[item] for item in items]
            )
            n_done += len(items)
            if on_batch is not None:
                on_batch(n_done, len(pairs))
        return scores

    def _forward(self, ids: Sequence[NDArray[np.int64]], type_ids: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        padded_ids, mask = pad(ids)
        feed = {"input_ids": padded_ids, "attention_mask": mask}
        if "token_type_ids" in self._input_names:
            feed["token_type_ids"] = pad(type_ids)[0]
        scores = self._session.run([OUTPUT], feed)[0]
        if scores.shape != (len(ids),):
            raise ModelError(f"the graph of {self.name} gives {OUTPUT!r} of shape {scores.shape} for {len(ids)} pairs")
        return _sigmoid(scores) if self._card.activation == SIGMOID else scores


def _sigmoid(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    return (1 / (1 + np.exp(-np.clip(scores.astype(np.float64), -700, 700)))).astype(np.float32)


def load_cross(
    model: str | Path | None = None,
    *,
    precision: str | None = None,
    n_threads: int | None = None,
    device: str | None = None,
) -> CrossEncoder:
    """The cross-encoder in a folder, an installed one by name, or one of the hub. `precision` is int8 by default if the
    folder has it, else the first of its card. `device` is "cpu", which is the default, or "cuda": see
    `plait.encode.load.load_model`."""
    check_device(device)
    folder = find_cross(model, precision=precision)
    card = read_cross_card(folder)
    record = choose_precision(card.precisions, card.name, folder, precision, device)
    graph, tokenizer_file = model_file(folder, record), model_file(folder, card.tokenizer)
    check = HashCheck(folder, [card.tokenizer, record], background=comes_with_plait(folder))
    tokenizer = PairTokenizer(open_tokenizer(tokenizer_file), card)
    # Graphs without a setting come from exporters, which leave operator fusion to the runtime.
    session = open_session(graph, n_threads, optimise=record.optimise or "all", device=device)
    check.wait()
    outputs = [output.name for output in session.get_outputs()]
    if OUTPUT not in outputs:
        raise ModelError(f"{graph} has the outputs {outputs}; a cross-encoder needs an output {OUTPUT!r}")
    return CrossEncoder(card, tokenizer, session)


def shared_cross(
    model: str | Path | None = None, *, n_threads: int | None = None, device: str | None = None
) -> CrossEncoder:
    """As `load_cross`, but one cross-encoder for all users of this process."""
    folder = find_cross(model)
    card = read_cross_card(folder)
    graphs = [file for record in card.precisions.values() for file in record.files]
    key = (*model_key(folder, card.fingerprint, [card.tokenizer, *graphs], n_threads), device or CPU)
    return shared_model(key, lambda: load_cross(model, n_threads=n_threads, device=device))


def trusted_cross(index: Path, model: object) -> str | None:
    """The cross-encoder that a CUR index names: an installed one, or one of the hub that is in the cache; None is the
    default one. ModelError for a folder: an index may come from a stranger, and the caller has to name a folder as
    well. Nothing is fetched because an index names it."""
    if model in (None, ""):
        return None
    if isinstance(model, str) and model in installed_cross_encoders():
        return model
    called = hub_name(model)
    if called is not None and (folder := cached_model(called, None, DEFAULT_PRECISION)) is not None:
        return str(folder)
    raise ModelError(
        f"the CUR index of {index} names the cross-encoder {model!r:.300}, and plait loads no folder because an index "
        f"names it; pass --model {model!s:.300} (model= of the params) if you trust it"
    )


def find_cross(model: str | Path | None = None, *, precision: str | None = None) -> Path:
    """The folder of a cross-encoder: an installed one by name, one of the hub by its name, which is fetched and
    converted if it is not in the cache, any other by its path; None is the default one."""
    installed = installed_cross_encoders()
    if model is not None:
        path = as_path("the model of a cross-encoder", model)
        if str(path) in installed:
            return installed[str(path)]
        called = hub_name(model)
        return path if called is None or path.is_dir() else find_hub_model(called, precision, fetch=True)
    if DEFAULT_CROSS in installed:
        return installed[DEFAULT_CROSS]
    raise ModelError(
        f"the cross-encoder {DEFAULT_CROSS} is not installed, and no other was named: pip install {DEFAULT_CROSS}, or "
        f"from a clone of plait: pip install ./models/{DEFAULT_CROSS}; or name a folder (--rerank-model FOLDER, or "
        f"rerank=FOLDER)"
    )
