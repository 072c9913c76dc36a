"""What searches for negatives. A run indexes the corpus of its recipe; other miners search a collection of shards,
which all processes of a run may build together: see `plait.cluster.mining`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from plait.encode.protocol import Encoder
from plait.train.data.example import Example
from plait.train.mining.config import MiningConfig
from plait.train.mining.negatives import make_index, mine_negatives, read_corpus
from plait.train.search_modes import IMPUTED


class Miner(Protocol):
    """Gives examples negatives."""

    def __call__(
        self, examples: Iterable[Example], *, seed: int, on_progress: Callable[[int], None] | None = None
    ) -> Iterator[Example]: ...


# Opens what is mined in, at a path for temporary files. Without an encoder it is searched by BM25.
OpenMiner = Callable[[Path, MiningConfig, Encoder | None], AbstractContextManager[Miner]]


class SharedMiner(Protocol):
    """A miner whose corpus all processes of a run encode together; the first one mines."""

    def build(self, path: Path, config: MiningConfig, encoder: Encoder, wait: Callable[[], None]) -> None:
        """Every process calls this. `wait` returns when all processes have called it."""

    def open(self, path: Path, config: MiningConfig, encoder: Encoder | None) -> AbstractContextManager[Miner]:
        """As `OpenMiner`, of what was built."""


@contextmanager
def index_miner(path: Path, config: MiningConfig, encoder: Encoder | None) -> Iterator[Miner]:
    """Mines in a new index of the corpus that the config names."""
    mode = "bm25" if encoder is None else config.mode
    with make_index(path, config.corpus, encoder) as index, read_corpus(config.corpus) as texts:
        if mode in IMPUTED:
            index.compact()
        yield partial(mine_negatives, index=index, texts=texts, config=config, mode=mode)
