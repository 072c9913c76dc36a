"""`plait mine`."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from plait.cli.errors import say
from plait.cli.progress import progress
from plait.errors import ConfigError

REQUIRED_PACKAGES = ("torch", "transformers", "safetensors")


def mine(
    data: Annotated[Path, typer.Argument(metavar="FOLDER", help="A BEIR folder: queries, judgements, corpus.")],
    to: Annotated[Path, typer.Option(metavar="FILE", help="Write the examples here, as JSON lines.")],
    split: Annotated[str, typer.Option(help="Which judgements.")] = "train",
    by: Annotated[str, typer.Option(metavar="bm25|MODEL", help="The retriever: BM25, or a model.")] = "bm25",
    mode: Annotated[str, typer.Option(help="The search mode of a model: dense, multi or hybrid.")] = "hybrid",
    number: Annotated[int, typer.Option(help="Hard negatives for each query.")] = 15,
    random: Annotated[int, typer.Option(help="Random negatives from the whole corpus, in addition.")] = 0,
    first_rank: Annotated[int, typer.Option(help="The first rank to take negatives from, from 1.")] = 1,
    last_rank: Annotated[int, typer.Option(help="The last rank to take them from.")] = 200,
    teacher: Annotated[str, typer.Option(metavar="FOLDER", help="A model that scores the passages.")] = "",
    teacher_kind: Annotated[str, typer.Option(help="cross-encoder or encoder.")] = "cross-encoder",
    margin: Annotated[
        float, typer.Option(help="Drop negatives with a teacher score above the positive's minus this; below 0: none.")
    ] = -1.0,
    limit: Annotated[int, typer.Option(help="Queries to read; 0: all.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed draws the same negatives.")] = 0,
    work: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the teacher's scores here, to continue later.")
    ] = None,
) -> None:
    """Mine hard negatives for training.

    These are passages that rank high for a query and are not judged relevant. Writes the format of FlagEmbedding, with
    ids; a recipe reads it as kind "flag". Datasets with different corpora are mined one by one and may be trained on
    together.

    \b
    Examples:
      plait mine data/boolq --to boolq.jsonl
      plait mine data/boolq --by my-model --first-rank 10 --to boolq.jsonl
    """
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"mine needs {', '.join(missing)}; install with: pip install 'plait[train]'")
    from plait.train.data.nway import write_flag
    from plait.train.data.sources import SourceConfig, read_source
    from plait.train.mining.config import MiningConfig
    from plait.train.mining.mining_rounds import mine_examples
    from plait.train.torch_encoder import open_encoder

    config = MiningConfig(
        corpus=str(data),
        first_searcher=by,
        mode=mode,
        n_negatives=number,
        n_random=random,
        first_rank=first_rank,
        last_rank=last_rank,
        teacher=teacher,
        teacher_kind=teacher_kind,
        margin=margin,
    )
    examples = read_source(SourceConfig(path=str(data), split=split, limit=limit))
    encoder = None if by == "bm25" else open_encoder(by)
    with tempfile.TemporaryDirectory() as made, progress("mining", "queries", total=None) as update:
        folder = made if work is None else work
        Path(folder).mkdir(parents=True, exist_ok=True)
        examples_with_negatives = mine_examples(
            examples,
            config,
            Path(folder),
            searcher=by,
            encoder=encoder,
            seed=seed,
            on_mined=lambda _, done: update(done, done),
        )
        n_written = write_flag(to, (one for one in examples_with_negatives if one.negatives))
    say(f"wrote {n_written:,} examples to {to}")
