"""Examples with mined negatives, from an index that is made for it and removed again; with a teacher's scores, and
without negatives that score too high, if those are asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from plait.encode.protocol import Encoder
from plait.train.data.example import Example
from plait.train.mining.config import MiningConfig
from plait.train.mining.negatives import make_index, mine, read_corpus
from plait.train.mining.teacher import CachedScorer, teacher_of, with_scores, without_false_negatives

OnMined = Callable[[str, int], None]  # what is being done, how many examples are done


def mined(
    examples: Iterable[Example],
    config: MiningConfig,
    folder: Path,
    *,
    who: str,
    encoder: Encoder | None,
    seed: int,
    on_mined: OnMined,
) -> Iterator[Example]:
    """Negatives that `encoder` finds in the corpus, or BM25 without one; `who` is what its progress is told as. Scores
    of a teacher stay in `folder`, so that a later call asks for new ones alone."""
    mode = "bm25" if encoder is None else config.mode
    cached = None
    try:
        with make_index(folder / "index", config.corpus, encoder) as index, read_corpus(config.corpus) as texts:
            found = mine(
                examples,
                index,
                texts,
                config,
                mode=mode,
                seed=seed,
                on_progress=lambda n: on_mined(f"mining with {who}", n),
            )
            if config.teacher:
                cached = CachedScorer(teacher_of(config), folder / "scores.sqlite")
                found = with_scores(found, cached)
            if config.margin >= 0:
                found = (without_false_negatives(one, margin=config.margin, kind=config.margin_kind) for one in found)
            yield from found
    finally:
        if cached is not None:
            cached.close()
        shutil.rmtree(folder / "index", ignore_errors=True)
