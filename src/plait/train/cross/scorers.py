"""`RowScorer`: one query with many documents, by a model whose whole backbone reads texts apart.

A pair then costs the joint layers alone: what they begin with is worked out once for each document and kept, narrow as
they are, and their last layer works out only the tokens that the head reads. This is what score matrices are made with.
The head `maxsim` reads all tokens: their last states are kept beside, and need memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from plait.encode.batches import by_length, pad
from plait.errors import ConfigError
from plait.rerank.cross_encoder import BATCH_TOKENS, OnBatch
from plait.rerank.pairs import Pair, PairTokenizer, TokenizedPairs
from plait.train.cross.model import CrossModel, PairTokens, nearest_between


def padded(read: TokenizedPairs, items: Sequence[int], device: torch.device | str = "cpu") -> PairTokens:
    """Some pairs as tensors."""
    ids, mask = pad([read.ids[item] for item in items])
    sides, _ = pad([read.type_ids[item] for item in items])
    return PairTokens(*(torch.from_numpy(part).to(device) for part in (ids, mask, sides)))


class TorchPairScorer:
    """Scores of a model as it is now."""

    def __init__(self, model: CrossModel, reader: PairTokenizer, *, fingerprint: str = "in training") -> None:
        self._model, self._reader, self.fingerprint = model, reader, fingerprint

    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        read, scores, n_done = self._reader.tokenize(pairs), np.zeros(len(pairs), np.float32), 0
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


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Documents of like length."""

    items: list[int]
    rows: Tensor  # (documents, length, dim): what the joint layers begin with
    mask: Tensor  # (documents, length)
    marker: Tensor  # (documents,): where the document's marker stands; 0 where the head has none
    states: Tensor  # (documents, n, hidden): those of the tokens that the head reads


class RowScorer:
    """Rows of a score matrix. The documents are read once, when it is made."""

    def __init__(self, model: CrossModel, reader: PairTokenizer, documents: Sequence[str]) -> None:
        if not reads_rows(model):
            raise ConfigError(
                f"rows of scores need a model that reads all its layers apart, joint layers above them and a "
                f"document_length; this one has {model.config}"
            )
        self._model, self._reader, self._n = model.eval(), reader, len(documents)
        ids = self._own([("", document) for document in documents], side=1)
        self._blocks = [
            self._read([ids[item] for item in items], items)
            for items in by_length([len(own) for own in ids], n_tokens=BATCH_TOKENS)
        ]

    @torch.no_grad()
    def score(self, query: str) -> NDArray[np.float32]:
        """(documents,): the scores of the query with all of them."""
        asked = self._read(self._own([(query, "")], side=0), [0], side=0)
        scores = np.zeros(self._n, np.float32)
        for block in self._blocks:
            scores[block.items] = self._scores(asked, block).numpy()
        return scores

    def _scores(self, asked: _Block, block: _Block) -> Tensor:
        """(documents,): of one query with the documents of a block."""
        n, n_query, joint = len(block.items), asked.rows.shape[1], self._model.joint
        assert joint is not None
        rows = torch.cat([asked.rows.expand(n, -1, -1), block.rows], dim=1)
        mask = torch.cat([asked.mask.expand(n, -1), block.mask], dim=1)
        kept = asked.states.expand(n, -1, -1)
        if self._model.weigh is not None:
            states = torch.cat([kept, block.states], dim=1) + joint.added(rows, mask)
            weights = self._model.weigh(states[:, :n_query])[:, :, 0]
            asked_units, held_units = F.normalize(states, dim=2).tensor_split([n_query], dim=1)
            texts = (asked_units, mask[:, :n_query]), (held_units, block.mask)
            return nearest_between(*texts, weights) * self._model.config.scale
        at = asked.marker.expand(n).unsqueeze(1)
        if self._model.marker_ids is not None:
            at = torch.cat([at, block.marker.unsqueeze(1) + n_query], dim=1)
            kept = torch.cat([kept, block.states], dim=1)
        return self._model.from_places(kept + joint.added(rows, mask, at))

    def _own(self, pairs: Sequence[tuple[str, str]], side: int) -> list[NDArray[np.int64]]:
        """The tokens of one text of each pair. With a document_length they do not depend on the other."""
        read = self._reader.tokenize(pairs)
        return [ids[sides == side] for ids, sides in zip(read.ids, read.type_ids, strict=True)]

    @torch.no_grad()
    def _read(self, texts: Sequence[NDArray[np.int64]], items: list[int], side: int = 1) -> _Block:
        ids, mask = (torch.from_numpy(part) for part in pad(texts))
        states = self._model.alone(ids, mask)
        markers = self._model.marker_ids
        marker = torch.zeros(len(ids), dtype=torch.int64)
        if markers is not None:
            marker = (ids == markers[side]).long().argmax(dim=1)
        assert self._model.joint is not None
        rows = self._model.joint.enter(states, torch.full_like(ids, side))
        if self._model.weigh is None:
            states = states[torch.arange(len(ids)), marker].unsqueeze(1)
        return _Block(items, rows, mask, marker, states.clone())


def reads_rows(model: CrossModel) -> bool:
    """Whether a model is one that `RowScorer` takes."""
    config, n_layers = model.config, model.backbone.encoder.config.num_hidden_layers
    return bool(config.joint and config.document_length and config.apart == n_layers)
