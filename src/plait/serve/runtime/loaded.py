"""`LoadedModels`: the encoders and rerankers of one worker. Each is loaded once, and its calls are batched across
indexes and requests."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from plait.encode.load import DEFAULT_MODEL, shared_encoder
from plait.encode.protocol import Encoder
from plait.index import Index
from plait.rerank.cross_encoder import DEFAULT_CROSS, shared_cross
from plait.rerank.reranker import DEFAULT_DEPTH, DEFAULT_MODEL_BLEND, Reranker
from plait.serve.config import ServeConfig
from plait.serve.protocol import ModelSummary, UnknownModelError
from plait.serve.runtime import catalog
from plait.serve.runtime.models import BatcherMaker, BatchingEncoder, BatchingScorer


class LoadedModels:
    """Threads share it; a model is loaded by the first thread that needs it."""

    def __init__(self, config: ServeConfig, make: BatcherMaker, n_threads: int) -> None:
        self._config, self._make, self._n_threads = config, make, n_threads
        self._lock = threading.RLock()
        self._encoders: dict[str, BatchingEncoder] = {}  # by name
        self._scorers: dict[str, BatchingScorer] = {}
        self._reranker_paths: dict[str, str | None] = {DEFAULT_CROSS: None}
        for given in config.rerankers:
            self._reranker_paths[Path(given).name if Path(given).is_dir() else given] = given

    def batched(self, encoder: Encoder) -> BatchingEncoder:
        """The batched form of an encoder that is loaded. Two encoders of one name get different names."""
        with self._lock:
            for known in self._encoders.values():
                if known.inner is encoder:
                    return known
            name = base = str(getattr(encoder, "name", "") or encoder.fingerprint[:40])
            while name in self._encoders:
                name = f"{base}-{len(self._encoders)}"
            self._encoders[name] = self._make.encoder(name, encoder)
            return self._encoders[name]

    def name_of(self, index: Index) -> str | None:
        """The name of the encoder of an open index."""
        try:
            encoder: Any = index.encoder
        except Exception:  # it has none
            return None
        return encoder.name if isinstance(encoder, BatchingEncoder) else None

    def encoder(self, name: str | None) -> BatchingEncoder:
        """An encoder by its name: one of an index, or one that the configuration allows. None is the first index's."""
        with self._lock:
            if name is None:
                name = next(iter(self._encoders), DEFAULT_MODEL)
            if name in self._encoders:
                return self._encoders[name]
            allowed = catalog.model_paths(self._config)
            if name not in allowed:
                names = ", ".join({**dict.fromkeys(self._encoders), **allowed})
                raise UnknownModelError(f"there is no encoder {name!r:.100} on this server; there are {names}")
            return self.batched(shared_encoder(allowed[name], n_threads=self._n_threads))

    def scorer(self, name: str | None) -> BatchingScorer:
        """A cross-encoder by its name; None is the default."""
        name = DEFAULT_CROSS if name is None else name
        if name not in self._reranker_paths:
            names = ", ".join(self._reranker_paths)
            raise UnknownModelError(f"there is no reranker {name!r:.100} on this server; there are {names}")
        with self._lock:
            if name not in self._scorers:
                scorer = shared_cross(self._reranker_paths[name], n_threads=self._n_threads)
                self._scorers[name] = self._make.scorer(name, scorer)
            return self._scorers[name]

    def reranker(self, given: object) -> Reranker | None:
        """The reranker of a search: None or False, True for the default one, or a name that the server allows."""
        if given is None or given is False:
            return None
        if isinstance(given, Reranker):
            return given
        name = None if given is True else str(given)
        blend = DEFAULT_MODEL_BLEND if name in (None, DEFAULT_CROSS) else 0.0
        return Reranker(self.scorer(name), DEFAULT_DEPTH, blend)

    def summaries(self) -> list[ModelSummary]:
        """The encoders that are loaded or may be, then the rerankers."""
        with self._lock:
            loaded = dict(self._encoders)
        names = [*loaded, *(name for name in catalog.model_paths(self._config) if name not in loaded)]
        default = next(iter(loaded), DEFAULT_MODEL)
        encoders = [
            ModelSummary(
                name=name,
                kind="encoder",
                sizes=loaded[name].spec.sizes() if name in loaded else {},
                max_tokens=_max_tokens(loaded[name].inner) if name in loaded else None,
                is_default=name == default,
            )
            for name in names
        ]
        rerankers = [
            ModelSummary(name=name, kind="reranker", is_default=name == DEFAULT_CROSS) for name in self._reranker_paths
        ]
        return encoders + rerankers

    def close(self) -> None:
        with self._lock:
            batched: list[BatchingEncoder | BatchingScorer] = [*self._encoders.values(), *self._scorers.values()]
            self._encoders.clear()
            self._scorers.clear()
        for one in batched:
            one.close()


def _max_tokens(encoder: Encoder) -> int | None:
    card = getattr(encoder, "card", None)
    return None if card is None else int(card.document.length)
