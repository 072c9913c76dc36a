"""A run: a recipe, a folder, and everything from the data to the best weights. Stopping it at any point and going on
gives the same weights as not stopping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from plait.errors import ConfigError
from plait.train import run_state as resume
from plait.train.batching.grad_cache import step_of
from plait.train.batching.plan import Position
from plait.train.batching.stream import Stream, TextBatch, facts_of
from plait.train.data.example_store import Pool
from plait.train.devices import Device, InPrecision, copy_weights, n_processes, on_any, seed_all
from plait.train.evaluation import Judged, evaluate, read_judged
from plait.train.loop import Joint, Parts, StepReport, Stop, steps
from plait.train.mining.mining_rounds import end_of, round_at, round_pool
from plait.train.optimiser import make_optimiser, rate_at
from plait.train.recipe import Recipe
from plait.train.run_folder import (
    BEST,
    CHECKPOINTS,
    CURVES,
    DATA,
    FINAL,
    PICTURE,
    Curves,
    forget_folder,
    plot,
    save_model_folder,
    start_folder,
)
from plait.train.run_state import State
from plait.train.tensors import Loss, Summed
from plait.train.torch_encoder import TorchEncoder, moved

_MEASURED = 64  # texts whose lengths are taken together


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told how a run goes; by default nobody."""

    on_step: Callable[[StepReport], None] = lambda _: None
    on_measure: Callable[[int, str, float, bool], None] = lambda *_: (
        None
    )  # step, measure, value, whether it is the best
    on_mined: Callable[[str, int], None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave."""

    state: State
    folder: Path
    is_first: bool  # whether this process is the one that speaks
    drawn: bool  # whether there is a picture of the curves
    values: dict[int, float] = field(default_factory=dict)  # measure by step, of this call


class Run:
    """One run in its folder, which is made, or, if it is `resumed`, gone on with. What is wrong with the folder is told
    before anything is built."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        build: Callable[[Recipe, Path], Parts],
        watch: Watch | None = None,
        *,
        resumed: bool = False,
    ) -> None:
        self._recipe, self._folder = recipe, folder
        self._device = Device(recipe.run)
        if self._device.is_first:
            start_folder(folder, recipe, resumed=resumed)
        self._device.wait()
        self._watch = (watch if self._device.is_first else None) or Watch()
        seed_all(recipe.run.seed)
        try:
            self._parts = build(recipe, folder)
        except BaseException:
            if self._device.is_first and not resumed:
                forget_folder(folder)
            raise
        self._model = self._parts.model.to(self._device.torch)
        copy_weights(self._model)
        self._optimiser = make_optimiser(self._parts.groups(recipe.optimiser), recipe.optimiser)
        self._encode = InPrecision(self._parts.searched, self._device)
        self._step = step_of(recipe.batching.split, recipe.batching.part)
        self._judged: Judged | None = None
        self._values: dict[int, float] = {}
        self._state: State | None = None
        self._curves: Curves | None = None
        self._stop = Stop()

    def train(self) -> Result:
        """All steps that are left. Ctrl-C lets the step that is under way end, saves a checkpoint, and raises
        KeyboardInterrupt; while there is no step under way, it raises at once, and the checkpoint before it counts."""
        seed_all(self._recipe.run.seed, own=True)
        checkpoint = resume.last(self._folder / CHECKPOINTS)
        if self._recipe.evaluation.data:
            self._judged = read_judged(self._recipe.evaluation, seed=self._recipe.run.seed)
        pool = None
        if checkpoint is not None:
            self._state = resume.load(checkpoint, self._model, self._optimiser)
        else:
            pool = self._pool(0)
            self._state = self._first_state(pool)
        if self._device.is_first:
            self._curves = Curves(self._folder / CURVES, from_step=self._state.step)
        try:
            with self._stop:
                self._rounds(pool)
        finally:
            if self._curves is not None:
                self._curves.close()
        drawn = self._device.is_first and plot(self._folder / CURVES, self._folder / PICTURE)
        return Result(self._state, self._folder, self._device.is_first, drawn, self._values)

    def _rounds(self, pool: Pool | None) -> None:
        assert self._state is not None
        n_steps = self._state.n_steps
        while self._state.step < n_steps:
            number = round_at(self._recipe, self._state.step, n_steps)
            pool = pool or self._pool(number)
            try:
                self._round(pool, end_of(self._recipe, number, n_steps))
            finally:
                pool.close()
                pool = None
            self._save()  # before the next round is mined with these weights
        if self._judged is not None and self._state.step % self._recipe.evaluation.every:
            self._measure()
            self._save()
        self._keep(FINAL, {})

    def _round(self, pool: Pool, until: int) -> None:
        assert self._state is not None
        recipe = self._recipe
        stream = self._stream(pool, self._state.position)
        reports = steps(
            self._state.step,
            until=until,
            n_steps=self._state.n_steps,
            stream=stream,
            backward=self._backward,
            model=self._model,
            optimiser=self._optimiser,
            share=rate_at(recipe.optimiser, self._state.n_steps),
            clip=recipe.optimiser.clip,
        )
        for report in self._stop.between(reports):
            self._state = replace(self._state, step=report.step, position=stream.position)
            if self._curves is not None:
                shown = {name: round(value, 6) for name, value in report.parts.items()}
                rate = round(report.n_pairs / max(report.seconds, 1e-9), 2)
                self._curves.add(
                    report.step, loss=report.loss, parts=shown, norm=report.norm, lr=report.rate, pairs_per_s=rate
                )
            self._watch.on_step(report)
            if self._judged is not None and self._state.step % recipe.evaluation.every == 0:
                self._measure()
            if self._state.step % recipe.run.save_every == 0:
                self._save()
            if on_any(self._stop.asked):
                self._save()
                raise KeyboardInterrupt

    def _backward(self, batch: TextBatch, step: int) -> Loss:
        if self._parts.pretraining is not None:
            with self._device.precision():
                loss = self._parts.pretraining(batch.queries, step)
            (loss.total / n_processes()).backward()
            return loss
        if self._parts.joint is not None and batch.documents:
            return self._joint(self._parts.joint, batch)
        if self._parts.objective is None or not batch.documents:
            raise ConfigError(
                "the data and the objective do not fit: bare texts are for pre-training, queries with passages for all "
                "other objectives"
            )
        facts = facts_of(batch, step=step, device=self._device.torch)
        # On the device before the step: a step that encodes twice keeps the random state of where its tokens are.
        queries = moved(self._parts.texts.queries(batch.queries), self._device.torch)
        documents = moved(self._parts.texts.documents(batch.documents), self._device.torch)
        return self._step(self._encode, self._parts.objective, queries, documents, facts)

    def _joint(self, losses: Joint, batch: TextBatch) -> Loss:
        """Part by part, so that the pairs of one part alone are in memory."""
        total, parts = torch.zeros((), device=self._device.torch), dict[str, float]()
        with self._device.precision():
            for loss, share in losses(batch):
                (loss.total * (share / n_processes())).backward()
                total += loss.total.detach() * share
                for name, value in loss.parts.items():
                    parts[name] = parts.get(name, 0.0) + value * share
        return Summed(total, parts)

    def _measure(self) -> None:
        """Searches with the model as it is; keeps it if it is the best so far."""
        assert self._state is not None
        config, value = self._recipe.evaluation, 0.0
        if self._device.is_first:
            assert self._judged is not None
            folder = self._folder / DATA / "evaluation"
            if self._parts.evaluate is not None:
                value = self._parts.evaluate(self._judged, config, folder)
            else:
                value = evaluate(self._encoder(), self._judged, config, folder)
        value = self._shared(value)
        step, best = self._state.step, self._state.best is None or value > self._state.best
        self._values[step] = value
        if self._curves is not None:
            self._curves.add(step, measure=config.measure, value=value)
        if best:
            self._state = replace(self._state, best=value, best_step=step)
            about = {"measure": config.measure, "value": value, "data": config.data, "split": config.split}
            self._keep(BEST, about | {"mode": config.mode})
        self._device.wait()
        self._watch.on_measure(step, config.measure, value, best)

    def _pool(self, number: int) -> Pool:
        """The data of a round: the first process makes it, the others read it."""
        for is_mine in (True, False):
            if self._device.is_first == is_mine:
                pool = round_pool(
                    self._recipe,
                    self._folder / DATA,
                    number,
                    measure=self._lengths,
                    encoder=self._encoder,
                    on_mined=self._watch.on_mined,
                )
            self._device.wait()
        return pool

    def _first_state(self, pool: Pool) -> State:
        position = Position(self._recipe.run.seed)
        config = self._recipe.optimiser
        n_steps = config.steps or config.epochs * len(self._stream(pool, position))
        return State(n_steps=n_steps, position=position)

    def _stream(self, pool: Pool, position: Position) -> Stream:
        by_label = {source.label: source.weight for source in self._recipe.data}
        weights = [by_label.get(name, 1.0) for name in pool.source_names]
        return Stream(pool, self._recipe.batching, position, weights=weights)

    def _save(self) -> None:
        assert self._state is not None
        resume.save(self._folder / CHECKPOINTS, self._model, self._optimiser, self._state)

    def _keep(self, name: str, about: dict[str, Any]) -> None:
        assert self._state is not None
        if self._device.is_first:
            save_model_folder(self._folder / name, self._parts.save, {"step": self._state.step, **about})

    def _encoder(self) -> TorchEncoder:
        step = 0 if self._state is None else self._state.step
        name = f"in training, step {step}"
        return TorchEncoder(self._parts.searched, self._parts.texts, fingerprint=name, device=self._device.torch)

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        """Lengths in tokens, as the model reads documents."""
        found: list[int] = []
        for start in range(0, len(texts), _MEASURED):
            found += self._parts.texts.documents(texts[start : start + _MEASURED]).mask.sum(dim=1).tolist()
        return found

    def _shared(self, value: float) -> float:
        """The first process's value, on every process."""
        if n_processes() == 1:
            return value
        held = torch.tensor([value], dtype=torch.float64, device=self._device.torch)
        torch.distributed.broadcast(held, 0)
        return float(held)
