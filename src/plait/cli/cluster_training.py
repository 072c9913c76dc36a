"""`plait cluster train` and `plait cluster mine`."""

from __future__ import annotations

import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from plait.cli.errors import StoppedError, say
from plait.cli.options import Model
from plait.cli.progress import progress
from plait.errors import ConfigError

REQUIRED_PACKAGES = ("torch", "transformers", "accelerate", "safetensors", "onnx")
_LINE_INTERVAL = 10.0  # seconds


def cluster_train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe (TOML file).", show_default=False)],
    to: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="The folder of the run, which every node sees; by default runs/RECIPE."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train.")] = 2,
    cpus: Annotated[float, typer.Option(min=0.1, help="Processors of each of them.")] = 1.0,
    gpu: Annotated[bool, typer.Option("--gpu", help="Give each of them a GPU.")] = False,
    restarts: Annotated[int, typer.Option(min=0, help="How often lost workers are replaced.")] = 3,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="The Ray cluster to join, or auto; by default Ray starts on this machine."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in RUN, with as many workers.")] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a value of the recipe; may be repeated."),
    ] = None,
) -> None:
    """Train a model with a recipe on several workers of a Ray cluster.

    The recipes and the folder of the run are those of plait train. Every worker
    scores the whole batch. Negatives are mined in shards that all workers
    encode. When a worker is lost, the run goes on from its last checkpoint. The
    nodes must see the folder of the run and the working directory. Needs
    plait[cluster,train].

    \b
    Examples:
      plait cluster train recipes/tiny.toml --workers 2
      plait cluster train recipes/m3.toml --to /data/m3 --gpu --address auto
      plait cluster train recipes/m3.toml --to /data/m3 --gpu --resume
    """
    _check_installed()
    from plait.cluster.ray_runtime import import_ray

    import_ray()  # says how to install it, before anything else is done
    from plait.cluster.ray_training import TrainWorkers, train_on_ray
    from plait.convert.start import read_start
    from plait.train.build import check_plan, start_of
    from plait.train.recipe import read_recipe

    read = read_recipe(recipe, change or [])
    check_plan(read)
    if name := start_of(read):
        origin = check_plan(read, read_start(name, on_stage=say))
        for line in () if origin is None or resume else origin.lines():
            say(line)
    folder = to or Path("runs") / recipe.stem
    spread = TrainWorkers(n_workers=workers, cpus=cpus, use_gpu=gpu, max_restarts=restarts)
    try:
        state = train_on_ray(
            read, folder, workers=spread, address=address, resumed=resume, on_line=_Lines().show, on_step=say
        )
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped; {folder} has the last checkpoint. To continue: the same command with --resume"
        ) from None
    best = "" if state.best is None else f"; best {state.best:.4f} at step {state.best_step:,}, in {folder}/best"
    print(f"{folder}: {state.step:,} steps by {workers} workers{best}; the last weights are in {folder}/final")


def _check_installed() -> None:
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"training needs {', '.join(missing)}; install with: pip install 'plait[cluster,train]'")


class _Lines:
    """Shows steps at intervals, and every measure."""

    def __init__(self) -> None:
        self._last = 0.0

    def show(self, line: dict[str, Any]) -> None:
        if "value" in line:
            say(f"step {line['step']:,}: {line['measure']} {line['value']:.4f}")
        elif "loss" in line and (now := time.monotonic()) - self._last >= _LINE_INTERVAL:
            self._last = now
            say(f"step {line['step']:,}  loss {line['loss']:.4f}  {line['pairs_per_s']:,.0f} pairs/s")


def cluster_mine(
    collection: Annotated[
        Path, typer.Argument(metavar="COLLECTION", help="The folder of the collection.", show_default=False)
    ],
    data: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A BEIR folder: queries and judgements.", show_default=False)
    ],
    to: Annotated[Path, typer.Option(metavar="FILE", help="Write the examples here, as JSON lines.")],
    split: Annotated[str, typer.Option(help="Which judgements.")] = "train",
    mode: Annotated[str, typer.Option(help="bm25, hybrid, dense, multi or another mode of collections.")] = "hybrid",
    number: Annotated[int, typer.Option(help="Hard negatives for each query.")] = 15,
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
    model: Model = None,
) -> None:
    """Mine hard negatives for training in a collection of shards.

    As plait mine, without building an index: the collection is searched, and
    its ids must be those of the judgements. Needs plait[train].

    \b
    Example:
      plait cluster mine big data/boolq --to boolq.jsonl
    """
    missing = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"mine needs {', '.join(missing)}; install with: pip install 'plait[train]'")
    from plait.cluster.mining import mine_in_collection
    from plait.cluster.sharded_index import open_cluster
    from plait.train.data.nway import write_flag
    from plait.train.data.sources import SourceConfig, read_source
    from plait.train.mining.config import MiningConfig

    config = MiningConfig(
        n_negatives=number,
        first_rank=first_rank,
        last_rank=last_rank,
        teacher=teacher,
        teacher_kind=teacher_kind,
        margin=margin,
    )
    examples = read_source(SourceConfig(path=str(data), split=split, limit=limit))
    with (
        open_cluster(collection, model=model) as opened,
        tempfile.TemporaryDirectory() as made,
        progress("mining", "queries", total=None) as update,
    ):
        folder = Path(made) if work is None else work
        folder.mkdir(parents=True, exist_ok=True)
        mined = mine_in_collection(
            examples, opened, config, folder, mode=mode, seed=seed, on_mined=lambda _, done: update(done, done)
        )
        n_written = write_flag(to, (one for one in mined if one.negatives))
    say(f"wrote {n_written:,} examples to {to}")
