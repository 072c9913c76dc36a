"""Pickles of other libraries, read without running anything that they name.

A pickle may name any function of any module and have it called. This reader resolves no name: those that a format needs
become instances of `Record`, which only stores what it is given, and any other name is an error.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from plait.errors import SourceError

Make = Callable[..., Any]


class Record:
    """Stands for an object of another library: its arguments and its state."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments, self.state = arguments, None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class UnsafePickleError(SourceError):
    """A pickle names something that plait does not expect in it."""


class _Reader(pickle.Unpickler):
    def __init__(self, raw: bytes, names: Mapping[str, Make], persistent: Callable[[Any], Any] | None) -> None:
        super().__init__(io.BytesIO(raw), encoding="utf-8")
        self._names, self._persistent = names, persistent

    def find_class(self, module: str, name: str) -> Any:
        known = self._names.get(f"{module}.{name}")
        if known is None:
            raise UnsafePickleError(f"it names {module}.{name}, which could run code, and is not read")
        return known

    def persistent_load(self, pid: Any) -> Any:
        if self._persistent is None:
            raise UnsafePickleError("it refers to data outside of itself")
        return self._persistent(pid)


def read_pickle(
    raw: bytes,
    where: object,
    *,
    names: Mapping[str, Make] | None = None,
    persistent: Callable[[Any], Any] | None = None,
) -> Any:
    """The value of a pickle; `names` are the only names that it may refer to, with what each becomes. SourceError for
    any other name, and for damage."""
    try:
        return _Reader(raw, names or {}, persistent).load()
    except UnsafePickleError as error:
        raise SourceError(f"{where}: {error}") from None
    except SourceError:
        raise
    except Exception as error:  # a damaged pickle may raise almost anything
        raise SourceError(f"{where} is damaged: {error!r:.200}; copy the source again") from None
