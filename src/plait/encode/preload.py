"""A model that loads in the background while the rest of a program starts: most of loading happens in native code, and
Python goes on importing beside it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.encode.onnx import OnnxEncoder


class ModelPreload:
    """Starts loading when it is made; `encoder` waits for the end of it."""

    def __init__(
        self, model: str | Path | None = None, *, precision: str | None = None, n_threads: int | None = None
    ) -> None:
        self.model, self.precision, self.n_threads = model, precision, n_threads
        self._encoder: OnnxEncoder | None = None
        self._error: Exception | None = None
        # Imports hold Python's lock wherever they run, so the libraries come first and here: then the thread is in
        # native code at once, and what the caller imports next goes on beside it.
        import onnxruntime  # noqa: F401
        import tokenizers  # noqa: F401

        # Not a daemon: a program that ends early must not pull the libraries away from under a thread that loads.
        self._thread = threading.Thread(target=self._load, name="plait-load-ahead")
        self._thread.start()

    def encoder(self) -> OnnxEncoder:
        """The model, or the error that loading it gave."""
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
