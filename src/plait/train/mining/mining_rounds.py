"""The data of each round of a run: the sources as they are, or with negatives mined by BM25, by a model folder, or by
the model in training as it is when the round begins."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from plait.encode.protocol import Encoder
from plait.train.data.example import Example
from plait.train.data.example_store import Measure, Pool, make_pool, pool_facts
from plait.train.data.nway import fields_of
from plait.train.data.sources import SourceConfig, read_source
from plait.train.mining.config import MiningConfig
from plait.train.mining.negatives import make_index, mine, read_corpus
from plait.train.mining.teacher import CachedScorer, teacher_of, with_scores, without_false_negatives
from plait.train.recipe import Recipe
from plait.train.torch_encoder import encoder_of

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


def round_at(recipe: Recipe, step: int, n_steps: int) -> int:
    """The round, from 0, that makes the step after `step`."""
    n_rounds = recipe.mining.rounds if recipe.mining.corpus else 1
    return next(number for number in range(n_rounds) if step < end_of(recipe, number, n_steps))


def end_of(recipe: Recipe, number: int, n_steps: int) -> int:
    """The step that a round ends at."""
    n_rounds = recipe.mining.rounds if recipe.mining.corpus else 1
    return round(n_steps * (number + 1) / n_rounds)


def round_pool(
    recipe: Recipe, folder: Path, number: int, *, measure: Measure, encoder: Callable[[], Encoder], on_mined: OnMined
) -> Pool:
    """The pool of a round; made if it is not there. `encoder` gives the model in training."""
    folder.mkdir(parents=True, exist_ok=True)
    path, made_from = folder / f"pool-{number}.sqlite", _made_from(recipe, number)
    if pool_facts(path) == made_from:
        return Pool(path)
    examples = (example for source in recipe.data for example in read_source(source))
    if not recipe.mining.corpus:
        return make_pool(path, examples, made_from=made_from, measure=measure)
    kept = _recorded(folder / f"mined-{number}.jsonl", _mined(recipe, folder, number, examples, encoder, on_mined))
    return make_pool(path, kept, made_from=made_from, measure=measure)


def _made_from(recipe: Recipe, number: int) -> str:
    """What a pool depends on: sources as they are on disk, mining, and the round."""
    sources = [[repr(source), *_stamp(source)] for source in recipe.data]
    return json.dumps([sources, repr(recipe.mining), recipe.run.seed, number])


def _stamp(source: SourceConfig) -> list[int]:
    path = Path(source.path)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [value for file in files if file.is_file() for value in (file.stat().st_size, file.stat().st_mtime_ns)]


def _mined(
    recipe: Recipe,
    folder: Path,
    number: int,
    examples: Iterable[Example],
    encoder: Callable[[], Encoder],
    on_mined: OnMined,
) -> Iterator[Example]:
    config = recipe.mining
    who = config.first if number == 0 else config.later
    searcher = None if who == "bm25" else encoder() if who == "model" else encoder_of(who)
    found = mined(examples, config, folder, who=who, encoder=searcher, seed=recipe.run.seed + number, on_mined=on_mined)
    # A query that has lost all its negatives is of no use where negatives are asked for.
    return (one for one in found if one.negatives or recipe.batching.n_negatives == 0)


def _recorded(path: Path, examples: Iterable[Example]) -> Iterator[Example]:
    """The examples, each written to `path` as it goes by: what was mined can be read, and trained on elsewhere."""
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            file.write(json.dumps(fields_of(example), ensure_ascii=False) + "\n")
            yield example
