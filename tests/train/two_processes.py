"""The program of each process in test_distributed.py: a few steps on its slice of each batch; saves the weights."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_model

from plait.train.batching.grad_cache import backward_of
from plait.train.batching.plan import BatchingConfig, Position
from plait.train.batching.stream import Stream, batch_targets
from plait.train.data.example_store import ExampleStore
from plait.train.devices import broadcast_weights, process
from plait.train.loop import steps
from plait.train.optimiser import OptimiserConfig, make_optimiser
from train.small import SmallModel, SmallTexts, all_kinds

N_STEPS = 5
SPLITS = ("none", "checkpoint", "gradcache")


def train(store_path: Path, split: str) -> SmallModel:
    """`N_STEPS` steps of batches of eight queries, over all processes."""
    # Each process begins elsewhere: the first one's weights must win.
    torch.manual_seed(process())
    model, texts = SmallModel().double(), SmallTexts()  # twice the digits: Adam makes noise of the last ones large
    broadcast_weights(model)
    config = OptimiserConfig(lr=0.01, steps=N_STEPS, clip=0.5)
    store = ExampleStore(store_path)
    step = backward_of(split, 3)

    def backward(batch, number):  # type: ignore[no-untyped-def]
        sides = texts.queries(batch.queries), texts.documents(batch.documents)
        return step(model, all_kinds, *sides, batch_targets(batch, step=number))

    stream = Stream(store, BatchingConfig(size=8, n_negatives=1, n_buckets=2), Position(3))
    reports = steps(
        0,
        until=N_STEPS,
        n_steps=N_STEPS,
        stream=stream,
        backward=backward,
        model=model,
        optimiser=make_optimiser(model.groups(config), config),
        lr_factor=lambda _: 1.0,
        clip=config.clip,
    )
    for _ in reports:
        pass
    store.close()
    return model


def main(rank: int, store: Path, meeting: Path, out: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    for split in SPLITS:
        save_model(train(store, split), str(out / f"{split}-{rank}.safetensors"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(Path, sys.argv[2:5]))
