"""`plait mine`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from plait.cli.errors import say
from plait.cli.progress import progress


def mine(
    data: Annotated[Path, typer.Argument(metavar="FOLDER", help="A BEIR folder: questions, answers, corpus.")],
    to: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the lists, as JSON lines.")],
    split: Annotated[str, typer.Option(help="Which judgements.")] = "train",
    by: Annotated[str, typer.Option(metavar="bm25|MODEL", help="Who searches: BM25, or a model.")] = "bm25",
    mode: Annotated[str, typer.Option(help="How a model searches: dense, multi or hybrid.")] = "hybrid",
    number: Annotated[int, typer.Option(help="Negatives for each question.")] = 15,
    random: Annotated[int, typer.Option(help="Negatives from the whole corpus, beside those.")] = 0,
    first_rank: Annotated[int, typer.Option(help="Take negatives from this rank on, counted from 1.")] = 1,
    last_rank: Annotated[int, typer.Option(help="The last rank to take them from.")] = 200,
    teacher: Annotated[str, typer.Option(metavar="FOLDER", help="A model whose scores go beside the passages.")] = "",
    teacher_kind: Annotated[str, typer.Option(help="cross-encoder or encoder.")] = "cross-encoder",
    margin: Annotated[
        float, typer.Option(help="Drop negatives the teacher scores above the answer less this; below 0: none.")
    ] = -1.0,
    limit: Annotated[int, typer.Option(help="Questions to read; 0 is all.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed draws the same negatives.")] = 0,
    work: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the teacher's scores here, to go on with later.")
    ] = None,
) -> None:
    """Find hard negatives for the questions of a set: passages that rank high and are not known to answer.

    The lists are in the form of FlagEmbedding, with ids; a recipe reads them as kind "flag". Sets with corpora of their
    own are mined one by one and trained on together.

    \b
    Examples:
      plait mine data/boolq --to boolq.jsonl
      plait mine data/boolq --by my-model --first-rank 10 --to boolq.jsonl
    """
    from plait.train.data.nway import write_lists
    from plait.train.data.sources import SourceConfig, read_source
    from plait.train.mining.config import MiningConfig
    from plait.train.mining.mining_rounds import mined
    from plait.train.torch_encoder import encoder_of

    config = MiningConfig(
        corpus=str(data),
        first=by,
        mode=mode,
        number=number,
        random=random,
        first_rank=first_rank,
        last_rank=last_rank,
        teacher=teacher,
        teacher_kind=teacher_kind,
        margin=margin,
    )
    examples = read_source(SourceConfig(path=str(data), split=split, limit=limit))
    encoder = None if by == "bm25" else encoder_of(by)
    with tempfile.TemporaryDirectory() as made, progress("mining", "questions", total=None) as update:
        folder = made if work is None else work
        Path(folder).mkdir(parents=True, exist_ok=True)
        found = mined(
            examples,
            config,
            Path(folder),
            who=by,
            encoder=encoder,
            seed=seed,
            on_mined=lambda _, done: update(done, done),
        )
        n_written = write_lists(to, (one for one in found if one.negatives))
    say(f"wrote {n_written:,} lists to {to}")
