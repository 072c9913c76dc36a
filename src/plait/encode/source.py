"""Where an index gets its encoder: given by the caller, or a model that is loaded when text is first encoded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plait.encode.load import find, load
from plait.encode.model_card import ModelCard, read_card
from plait.encode.protocol import EmbeddingSpec, Encoder
from plait.errors import ConfigError, EncoderMismatchError
from plait.storage.store import Store

if TYPE_CHECKING:
    from plait.encode.preload import ModelPreload

ARRAYS = "arrays"  # the fingerprint of an index whose vectors are made by its caller


class EncoderSource:
    """Where an index gets its encoder: given, or loaded from a model when text is first encoded. What the model says
    of itself is known before: reading its card takes no libraries and no time."""

    def __init__(
        self,
        model: str | Path | None,
        encoder: Encoder | None,
        *,
        precision: str | None,
        n_threads: int,
        ahead: ModelPreload | None = None,
    ) -> None:
        self._model, self._encoder, self._ahead = model, encoder, ahead
        self._precision, self._n_threads = precision, n_threads
        self._arrays_of: Path | None = None  # the index, where its vectors are made by its caller

    @property
    def name(self) -> str | None:
        """What an index keeps so that it finds the model again."""
        if self._encoder is not None:
            return getattr(self._encoder, "name", None)
        return self._card().name if self._model is None else str(self._model)

    def fingerprint(self) -> str:
        return self._card().fingerprint if self._encoder is None else self._encoder.fingerprint

    def spec(self) -> EmbeddingSpec:
        return self._card().spec if self._encoder is None else self._encoder.spec

    def apart(self) -> tuple[str, ...]:
        """The strands that hybrid search leaves out unless they are given a weight."""
        card = self._card() if self._encoder is None else getattr(self._encoder, "card", None)
        sparse = getattr(card, "sparse", None)
        return ("sparse",) if sparse is not None and sparse.apart else ()

    def serve(self, store: Store) -> None:
        """From now on the encoder is for `store`, and must be the one that it was built with."""
        if store.fingerprint == ARRAYS:
            self._arrays_of = store.path
            if self._model is None and self._encoder is None:
                return
        elif self._model is None and self._encoder is None:
            self._model = store.facts.get("model")
        if self.fingerprint() != store.fingerprint:
            raise EncoderMismatchError(
                f"index {store.path} was built with encoder {store.fingerprint!r}, but this one is "
                f"{self.fingerprint()!r}: their vectors cannot be compared. Open it with the first, or build anew"
            )

    def get(self) -> Encoder:
        if self._encoder is None:
            if self._arrays_of is not None:
                raise ConfigError(
                    f"index {self._arrays_of} was built from arrays, so plait has no encoder for it; "
                    f"search it with search_embeddings, add to it with add_embeddings"
                )
            self._encoder = self._load()
        return self._encoder

    def _load(self) -> Encoder:
        ahead = self._ahead
        if ahead is not None and find(ahead.model) == find(self._model) and ahead.precision == self._precision:
            return ahead.encoder()
        return load(self._model, precision=self._precision, n_threads=self._n_threads)

    def _card(self) -> ModelCard:
        return read_card(find(self._model))
