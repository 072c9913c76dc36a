"""The examples of each round of a run: the sources as they are, or with negatives mined by BM25, by a model folder, or
by the model in training with its weights at the start of the round."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from plait.encode.protocol import Encoder
from plait.train.data.example import Example
from plait.train.data.example_store import CountTokens, ExampleStore, build_example_store, stored_inputs
from plait.train.data.nway import flag_fields
from plait.train.data.sources import SourceConfig, read_source
from plait.train.mining.config import MiningConfig
from plait.train.mining.miner import OpenMiner, SharedMiner, index_miner
from plait.train.mining.teacher import CachedScorer, drop_false_negatives, open_teacher, with_scores
from plait.train.recipe import Recipe
from plait.train.torch_encoder import open_encoder

OnMined = Callable[[str, int], None]  # the stage, the number of examples done
BM25, MODEL = "bm25", "model"  # what searches; anything else is a model folder
INDEX = "index"  # in the folder of the data: what is mined in, while a round is mined


def round_at(recipe: Recipe, step: int, n_steps: int) -> int:
    """The round, from 0, that makes the step after `step`."""
    n_rounds = recipe.mining.rounds if recipe.mining.corpus else 1
    return next(number for number in range(n_rounds) if step < round_end(recipe, number, n_steps))


def round_end(recipe: Recipe, number: int, n_steps: int) -> int:
    """The last step of a round."""
    n_rounds = recipe.mining.rounds if recipe.mining.corpus else 1
    return round(n_steps * (number + 1) / n_rounds)


def round_examples(
    recipe: Recipe,
    folder: Path,
    number: int,
    *,
    count_tokens: CountTokens,
    encoder: Callable[[], Encoder],
    on_mined: OnMined,
    open_miner: OpenMiner = index_miner,
) -> ExampleStore:
    """The examples of a round; the store is built unless it exists. `encoder` returns the model in training."""
    folder.mkdir(parents=True, exist_ok=True)
    path, inputs = _store(folder, number), _inputs(recipe, number)
    if stored_inputs(path) == inputs:
        return ExampleStore(path)
    examples = (example for source in recipe.data for example in read_source(source))
    if not recipe.mining.corpus:
        return build_example_store(path, examples, inputs=inputs, count_tokens=count_tokens)
    mined = _mine_round(recipe, folder, number, examples, encoder, on_mined, open_miner)
    saved = _save_each(folder / f"mined-{number}.jsonl", mined)
    return build_example_store(path, saved, inputs=inputs, count_tokens=count_tokens)


def prepare_round(
    recipe: Recipe,
    folder: Path,
    number: int,
    *,
    encoder: Callable[[], Encoder],
    miner: SharedMiner,
    any_process: Callable[[bool], bool],
    wait: Callable[[], None],
) -> OpenMiner:
    """What a round is to be mined with. Every process calls this before the first one calls `round_examples`: if a
    model is to search, all processes encode the corpus together."""
    searcher = _searcher(recipe, number)
    is_stored = stored_inputs(_store(folder, number)) == _inputs(recipe, number)
    if not recipe.mining.corpus or searcher == BM25 or not any_process(not is_stored):
        return index_miner
    folder.mkdir(parents=True, exist_ok=True)
    miner.build(folder / INDEX, recipe.mining, encoder() if searcher == MODEL else open_encoder(searcher), wait)
    return miner.open


def mine_examples(
    examples: Iterable[Example],
    config: MiningConfig,
    folder: Path,
    *,
    searcher: str,
    encoder: Encoder | None,
    seed: int,
    on_mined: OnMined,
    open_miner: OpenMiner = index_miner,
) -> Iterator[Example]:
    """The examples with negatives that `encoder`, or BM25 if it is None, finds in the corpus. The index is temporary.
    `searcher` is its name in progress reports. With a teacher, passages get scores, and negatives above the margin are
    dropped. Scores stay in `folder`, so a later call computes new ones only."""
    cached = None
    try:
        with open_miner(folder / INDEX, config, encoder) as mine:
            mined = mine(examples, seed=seed, on_progress=lambda n_done: on_mined(f"mining with {searcher}", n_done))
            if config.teacher:
                cached = CachedScorer(open_teacher(config), folder / "teacher-scores.sqlite")
                mined = with_scores(mined, cached)
            if config.margin >= 0:
                mined = (drop_false_negatives(one, margin=config.margin, kind=config.margin_kind) for one in mined)
            yield from mined
    finally:
        if cached is not None:
            cached.close()
        shutil.rmtree(folder / INDEX, ignore_errors=True)


def _searcher(recipe: Recipe, number: int) -> str:
    return recipe.mining.first_searcher if number == 0 else recipe.mining.later_searcher


def _store(folder: Path, number: int) -> Path:
    return folder / f"examples-{number}.sqlite"


def _inputs(recipe: Recipe, number: int) -> str:
    """What the examples of a round depend on: the files of the sources, the mining config, the seed and the round."""
    sources = [[repr(source), *_file_stamps(source)] for source in recipe.data]
    return json.dumps([sources, repr(recipe.mining), recipe.run.seed, number])


def _file_stamps(source: SourceConfig) -> list[int]:
    path = Path(source.path)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [value for file in files if file.is_file() for value in (file.stat().st_size, file.stat().st_mtime_ns)]


def _mine_round(
    recipe: Recipe,
    folder: Path,
    number: int,
    examples: Iterable[Example],
    model_in_training: Callable[[], Encoder],
    on_mined: OnMined,
    open_miner: OpenMiner,
) -> Iterator[Example]:
    config, searcher = recipe.mining, _searcher(recipe, number)
    encoder: Encoder | None = None
    if searcher != BM25:
        encoder = model_in_training() if searcher == MODEL else open_encoder(searcher)
    mined = mine_examples(
        examples,
        config,
        folder,
        searcher=searcher,
        encoder=encoder,
        seed=recipe.run.seed + number,
        on_mined=on_mined,
        open_miner=open_miner,
    )
    # A query that lost all its negatives cannot be used if batches need negatives.
    return (one for one in mined if one.negatives or recipe.batching.n_negatives == 0)


def _save_each(path: Path, examples: Iterable[Example]) -> Iterator[Example]:
    """The examples; each is written to `path` on the way, so that mined lists can be read and used elsewhere."""
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            file.write(json.dumps(flag_fields(example), ensure_ascii=False) + "\n")
            yield example
