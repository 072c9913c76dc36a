"""Hidden states of the frozen encoder, the input of the arms that train. The graph is cut after a layer and run once;
states are saved. Needs the package onnx."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plait.encode.batches import by_length, pad
from plait.encode.chunking import with_title
from plait.encode.model_card import ModelCard, read_card
from plait.errors import ConfigError
from plait.evaluate.run_cache import hash_of
from plait_reproduce.workbench import Arrays, Workbench

if TYPE_CHECKING:
    from plait.encode.tokenizer import ModelTokenizer

PART = 200  # texts encoded and saved at a time
BATCH_TOKENS = 2048
NORMS_A_LAYER = 2  # after attention and after the feed-forward part; one more follows the embeddings


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Texts as tokens; text i owns rows offsets[i] to offsets[i + 1] of all arrays."""

    values: NDArray[np.float16]  # (rows, hidden)
    ids: NDArray[np.int32]  # (rows,) token ids
    kept: NDArray[np.bool_]  # (rows,) whether it becomes a multi vector; document punctuation does not
    seen: NDArray[np.bool_]  # (rows,) whether other tokens attend to it; not to a [MASK] that fills a query
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def of(self, item: int) -> slice:
        return slice(int(self.offsets[item]), int(self.offsets[item + 1]))

    def some(self, items: Sequence[int]) -> States:
        """The states of these texts, in this order."""
        rows = np.concatenate([np.arange(self.offsets[item], self.offsets[item + 1]) for item in items])
        offsets = np.concatenate([[0], np.cumsum(self.lengths[np.asarray(items, np.int64)])])
        return States(self.values[rows], self.ids[rows], self.kept[rows], self.seen[rows], offsets)


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """One vector per text, pooled in two ways."""

    first: NDArray[np.float32]  # (texts, hidden) the mean over all occurrences of the first token
    mean: NDArray[np.float32]  # (texts, hidden) the mean over all tokens


class FrozenEncoder:
    """The model of a workbench up to a layer; -1 is the last. `masks`: fill queries with [MASK] to this many tokens.
    `mcls`: repeat the first token of a document at this stride."""

    def __init__(
        self, workbench: Workbench, *, layer: int, length: int, masks: int = 0, mcls: int | None = None
    ) -> None:
        self._workbench, self._length, self._masks, self._mcls = workbench, length, masks, mcls
        encoder = workbench.encoder(length=length)
        self._card, self._layer = encoder.card, layer
        self.key = f"{encoder.fingerprint}/layer {layer}"
        self._opened: tuple[Any, ModelTokenizer] | None = None

    def pooled(self, name: str, texts: Sequence[str], *, is_query: bool) -> Pooled:
        """Pooled vectors of texts; their states are not saved."""

        def make(part: list[str]) -> Arrays:
            ids, states = self._states(part, is_query=is_query)
            first = [
                text_states[token == token[0]].mean(axis=0) for text_states, token in zip(states, ids, strict=True)
            ]
            return {"first": np.stack(first), "mean": np.stack([text_states.mean(axis=0) for text_states in states])}

        parts = self._kept_parts("pooled states", name, list(texts), make, is_query=is_query)
        return Pooled(*(np.concatenate([part[way] for part in parts]) for way in ("first", "mean")))

    def queries(self, name: str, texts: Sequence[str]) -> States:
        return self._in_parts(name, list(texts), is_query=True)

    def documents(self, name: str, documents: Sequence[tuple[str, str]]) -> States:
        """The states of (title, text) pairs."""
        return self._in_parts(name, [with_title(*document) for document in documents], is_query=False)

    def _in_parts(self, name: str, texts: list[str], *, is_query: bool) -> States:
        def make(part: list[str]) -> Arrays:
            return self._encode(part, is_query=is_query)

        parts = self._kept_parts("states", name, texts, make, is_query=is_query)
        lengths = np.concatenate([part["lengths"] for part in parts])
        values, ids, kept, seen = (
            np.concatenate([part[name] for part in parts]) for name in ("values", "ids", "kept", "seen")
        )
        return States(values, ids, kept, seen, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def _kept_parts(
        self, kind: str, name: str, texts: list[str], make: Callable[[list[str]], Arrays], *, is_query: bool
    ) -> list[Arrays]:
        parts = []
        for start in range(0, len(texts), PART):
            part = texts[start : start + PART]

            def said(part: list[str] = part, start: int = start) -> Arrays:
                side = "queries" if is_query else "documents"
                self._workbench.say(f"{kind} of {name}: {side} {start + len(part)} of {len(texts)}")
                return make(part)

            reading = [is_query, self._masks] if is_query else [is_query, self._mcls]
            key = {"of": hash_of([part, self.key, self._length, reading])}
            parts.append(self._workbench.arrays.get(kind, key, said))
        return parts

    def _states(
        self, texts: Sequence[str], *, is_query: bool
    ) -> tuple[list[NDArray[np.int64]], list[NDArray[np.float32]]]:
        """Token ids and states of each text."""
        session, reader = self._open()
        ids = reader.tokenize(texts, is_query=is_query).ids
        looked_at = [len(text_ids) for text_ids in ids]
        if is_query and self._masks:
            mask_id = reader.token_id("[MASK]")
            ids = [
                np.concatenate([text_ids, np.full(max(0, self._masks - len(text_ids)), mask_id)]) for text_ids in ids
            ]
        parts: list[NDArray[np.float32]] = [np.zeros((0, 0), np.float32)] * len(ids)
        for items in by_length([len(text_ids) for text_ids in ids], n_tokens=BATCH_TOKENS):
            padded, mask = pad([ids[item] for item in items])
            for row, item in enumerate(items):
                mask[row, looked_at[item] :] = 0
            states = session.run(None, {"input_ids": padded, "attention_mask": mask})[0]
            for row, item in enumerate(items):
                parts[item] = states[row, : len(ids[item])]
        return ids, parts

    def _encode(self, texts: Sequence[str], *, is_query: bool) -> Arrays:
        _, reader = self._open()
        ids, states = self._states(texts, is_query=is_query)
        together = np.concatenate(ids)
        skipped = (
            [] if is_query or self._card.multi is None else [reader.token_id(token) for token in self._card.multi.skip]
        )
        fills = [reader.token_id("[MASK]")] if is_query and self._masks else []
        return {
            "values": np.concatenate(states).astype(np.float16),
            "ids": together.astype(np.int32),
            "kept": ~np.isin(together, skipped),
            "seen": ~np.isin(together, fills),
            "lengths": np.array([len(text_ids) for text_ids in ids], np.int64),
        }

    def _open(self) -> tuple[Any, ModelTokenizer]:
        if self._opened is None:
            self._opened = open_cut(self._workbench, self._layer, self._length, self._mcls)
        return self._opened


def open_cut(workbench: Workbench, layer: int, length: int, mcls: int | None = None) -> tuple[Any, ModelTokenizer]:
    """A session of the graph cut after a layer, and the reader of its texts."""
    from dataclasses import replace

    from plait.encode.load import choose_precision, find_model, open_session, open_tokenizer
    from plait.encode.model_files import model_file
    from plait.encode.tokenizer import ModelTokenizer

    folder = find_model(workbench.model)
    card = read_card(folder)
    card = replace(card, document=replace(card.document, length=min(length, card.document.length), mcls=mcls))
    graph = model_file(folder, choose_precision(card.precisions, card.name, folder, None))
    cut = workbench.work / "graphs" / f"{card.name}-{layer}.onnx"
    if not cut.exists():
        cut.parent.mkdir(parents=True, exist_ok=True)
        cut_graph(graph, cut, card, layer)
    return open_session(cut, workbench.n_threads), ModelTokenizer(
        open_tokenizer(model_file(folder, card.tokenizer)), card
    )


def cut_graph(graph: Path, to: Path, card: ModelCard, layer: int) -> None:
    """Writes the graph with the states after a layer as its only output."""
    import onnx

    model = onnx.load(str(graph))
    norms = [node.output[0] for node in model.graph.node if node.op_type == "LayerNormalization"]
    last = len(norms) - 1
    norm = last if layer == -1 else NORMS_A_LAYER * layer
    if not 0 <= norm <= last:
        raise ConfigError(
            f"{card.name} has {last // NORMS_A_LAYER} layers, so it cannot be cut after layer {layer}; "
            "arms that train need a model of the BERT family, such as plait-gte-small"
        )
    del model.graph.output[:]
    states = onnx.helper.make_tensor_value_info(norms[norm], onnx.TensorProto.FLOAT, ["n", "length", None])
    model.graph.output.append(states)
    draft = to.with_suffix(".draft")
    onnx.save(model, str(draft))
    draft.replace(to)
