"""`TorchPairScorer`: a cross-encoder in training, as what search and evaluation rerank with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from plait.encode.batches import by_length, pad
from plait.rerank.cross_encoder import BATCH_TOKENS, OnBatch
from plait.rerank.pairs import Pair, PairIds, PairReader
from plait.train.cross.model import CrossModel, PairTokens


def padded(read: PairIds, items: Sequence[int], device: torch.device | str = "cpu") -> PairTokens:
    """Some pairs as tensors."""
    ids, mask = pad([read.ids[item] for item in items])
    sides, _ = pad([read.sides[item] for item in items])
    return PairTokens(*(torch.from_numpy(part).to(device) for part in (ids, mask, sides)))


class TorchPairScorer:
    """Scores of a model as it is now."""

    def __init__(self, model: CrossModel, reader: PairReader, *, fingerprint: str = "in training") -> None:
        self._model, self._reader, self.fingerprint = model, reader, fingerprint

    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        read, scores, n_done = self._reader.read(pairs), np.zeros(len(pairs), np.float32), 0
        device, training = next(self._model.parameters()).device, self._model.training
        self._model.eval()
        try:
            with torch.no_grad():
                for items in by_length([len(ids) for ids in read.ids], n_tokens=BATCH_TOKENS):
                    scores[items] = self._model(padded(read, items, device)).float().cpu().numpy()
                    n_done += len(items)
                    if on_batch is not None:
                        on_batch(n_done, len(pairs))
        finally:
            self._model.train(training)
        return scores
