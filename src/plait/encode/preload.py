"""Loads a model in a background thread while the rest of a program starts. Most of loading is native code, so Python
can go on importing meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.encode.onnx import OnnxEncoder


class ModelPreload:
    """Starts loading at construction; `encoder` waits for the result."""

    def __init__(
        self, model: str | Path | None = None, *, precision: str | None = None, n_threads: int | None = None
    ) -> None:
        self.model, self.precision, self.n_threads = model, precision, n_threads
        self._encoder: OnnxEncoder | None = None
        self._error: Exception | None = None
        # An import holds Python's lock in any thread, so the libraries are imported here first. The thread is then in
        # native code at once, while the caller goes on importing.
        import onnxruntime  # noqa: F401
        import tokenizers  # noqa: F401

        # Not a daemon: a program that ends early must not unload the libraries while the thread uses them.
        self._thread = threading.Thread(target=self._load, name="plait-preload")
        self._thread.start()

    def encoder(self) -> OnnxEncoder:
        """The model; raises the error if loading failed."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._encoder is not None
        return self._encoder

    def _load(self) -> None:
        try:
            from plait.encode.load import load_model

            self._encoder = load_model(self.model, precision=self.precision, n_threads=self.n_threads)
        except Exception as error:
            self._error = error
