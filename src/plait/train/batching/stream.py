"""Batches one after another, epoch after epoch, from a position on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plait.errors import ConfigError
from plait.train.batching.collate import TextBatch, choose, collate
from plait.train.batching.config import BatchingConfig
from plait.train.batching.gather import n_processes, process
from plait.train.batching.plan import Batch, Position, plan_epoch, share_of
from plait.train.data.example_store import Pool


class Stream:
    """Gives the part of this process of each batch. `position` is that of the next one; setting out from it again gives
    the same batches."""

    def __init__(
        self, pool: Pool, config: BatchingConfig, position: Position, *, weights: Sequence[float] = ()
    ) -> None:
        self._pool, self._config, self._weights = pool, config, weights
        self.position = position
        n_without = int((pool.n_negatives == 0).sum())
        if config.n_negatives and n_without:
            raise ConfigError(
                f"batching.n_negatives is {config.n_negatives}, but {n_without:,} of {len(pool):,} examples have no "
                f"negative; mine negatives (the section mining of the recipe), or set n_negatives to 0"
            )
        self._plan = self._planned()

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._plan)

    def next(self) -> TextBatch:
        if self.position.batch >= len(self._plan):
            self.position = replace(self.position, epoch=self.position.epoch + 1, batch=0)
            self._plan = self._planned()
        numbers = self._plan[self.position.batch]
        at, self.position = self.position, replace(self.position, batch=self.position.batch + 1)
        examples = self._pool.get(numbers)
        own = share_of(len(numbers), process(), n_processes())
        if not examples[0].positives:  # bare texts, for pre-training
            return TextBatch.of_texts([example.query for example in examples[own]])
        chosen = [choose(example, self._config.n_negatives, seed=at.seed, epoch=at.epoch) for example in examples]
        return collate(self._pool, chosen, own)

    def _planned(self) -> list[Batch]:
        at = self.position
        weights = self._weights
        return plan_epoch(
            self._pool, self._config, seed=at.seed, epoch=at.epoch, n_processes=n_processes(), weights=weights
        )
