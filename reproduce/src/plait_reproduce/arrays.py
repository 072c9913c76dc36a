"""Arrays that are costly to make, kept in files by what decides them. A file is whole or it is not there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.evaluate.run_cache import hash_of

Arrays = dict[str, NDArray[Any]]


class KeptArrays:
    """A folder of named arrays."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(self, kind: str, key: Mapping[str, object], make: Callable[[], Arrays]) -> Arrays:
        """The arrays that `make` gives; made once for a kind and a key, which must hold all that decides them."""
        file = self.folder / kind / f"{hash_of(dict(key))}.npz"
        if file.exists():
            with np.load(file, allow_pickle=False) as found:
                return {name: found[name] for name in found.files}
        made = make()
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}.draft")
        with draft.open("wb") as handle:
            np.savez(handle, **made)  # type: ignore[arg-type]  # numpy takes a name for an option of its own
        draft.replace(file)
        file.with_suffix(".json").write_text(json.dumps(dict(key), indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return made
