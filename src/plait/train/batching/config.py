"""How batches are made: sizes, buckets of like length, negatives, and how a large batch is split."""

from __future__ import annotations

from dataclasses import dataclass

from plait.errors import ConfigError

SPLITS = ("none", "checkpoint", "gradcache")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingConfig:
    """Batches of like length. A batch holds examples of one source and one bucket."""

    size: int = 32  # queries of a batch over all processes, where `sizes` does not say otherwise
    edges: tuple[int, ...] = ()  # rising lengths in tokens; bucket i begins at edges[i]. Empty: buckets of equal counts
    sizes: tuple[int, ...] = ()  # queries of a batch for each bucket; empty: `size` for all
    n_buckets: int = 8  # of equal counts, where there are no edges; 1 is no grouping
    n_negatives: int = 0  # of each query, drawn anew each epoch; others' passages are negatives besides
    split: str = "none"  # how a batch goes through the model: whole, in checkpointed parts, or by GradCache
    part: int = 32  # texts that go through the model together, where it is split
    shuffle: bool = True  # False keeps the order of the data within buckets

    def __post_init__(self) -> None:
        for name in ("size", "n_buckets", "part"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.n_negatives < 0:
            raise ConfigError(f"n_negatives is {self.n_negatives}; it must be 0 or more")
        if any(later <= earlier for earlier, later in zip(self.edges, self.edges[1:], strict=False)):
            raise ConfigError(f"edges are {list(self.edges)}; each must be above the one before")
        if self.edges and self.edges[0] != 0:
            raise ConfigError(f"edges begin at {self.edges[0]}; the first bucket must begin at 0")
        if self.sizes and len(self.sizes) != (len(self.edges) or self.n_buckets):
            raise ConfigError(
                f"there are {len(self.sizes)} sizes for {len(self.edges) or self.n_buckets} buckets; each needs one"
            )
        if any(size < 1 for size in self.sizes):
            raise ConfigError(f"sizes are {list(self.sizes)}; each must be at least 1")
        if self.split not in SPLITS:
            raise ConfigError(f"split is {self.split!r}; choose one of {', '.join(SPLITS)}")

    @property
    def group(self) -> int:
        """Passages of each query: one positive and its negatives."""
        return 1 + self.n_negatives
