"""A run: a recipe, a folder, and everything from the data to the best weights. A run that was stopped at any point and
resumed gives the same weights as one that was not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from plait.errors import ConfigError
from plait.train import run_state
from plait.train.batching.grad_cache import backward_of
from plait.train.batching.plan import Position
from plait.train.batching.stream import Stream, TextBatch, batch_targets
from plait.train.data.example_store import ExampleStore
from plait.train.devices import (
    AutocastEncoder,
    Device,
    any_process,
    broadcast_weights,
    from_first_process,
    n_processes,
    seed_all,
)
from plait.train.evaluation import DevSet, evaluate, load_dev_set
from plait.train.loop import InterruptHandler, PairLosses, StepReport, Trainable, steps
from plait.train.mining.miner import OpenMiner, SharedMiner, index_miner
from plait.train.mining.mining_rounds import prepare_round, round_at, round_end, round_examples
from plait.train.optimiser import lr_schedule, make_optimiser
from plait.train.recipe import Recipe
from plait.train.run_folder import (
    BEST,
    CHECKPOINTS,
    CURVES,
    DATA,
    FINAL,
    PLOT,
    Curves,
    plot,
    save_model_folder,
    start_folder,
    undo_start,
)
from plait.train.run_state import RunState
from plait.train.tensors import Loss, LossValue
from plait.train.torch_encoder import TorchEncoder, to_device

BATCH_TEXTS = 64  # texts that are tokenized together to count their tokens


@dataclass(frozen=True, slots=True)
class RunCallbacks:
    """Functions that are called while a run goes on."""

    on_step: Callable[[StepReport], None] = lambda _: None
    on_measure: Callable[[int, str, float, bool], None] = lambda *_: None  # step, measure, value, is the best so far
    on_mined: Callable[[str, int], None] = lambda *_: None  # stage, queries done


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of `Run.train`."""

    state: RunState
    folder: Path
    is_first: bool  # whether this process reports progress
    plotted: bool  # whether curves.png was written
    values: dict[int, float] = field(default_factory=dict)  # the measure by step, for the steps of this call


class Run:
    """One run in its folder, which is new, or holds the run to resume. A wrong folder is an error before anything is
    built."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        build: Callable[[Recipe, Path], Trainable],
        callbacks: RunCallbacks | None = None,
        *,
        resumed: bool = False,
        device: str | None = None,
        miner: SharedMiner | None = None,
    ) -> None:
        """With `miner`, all processes encode the corpus that negatives are mined in."""
        self._recipe, self._folder, self._miner = recipe, folder, miner
        self._device = Device(recipe.run, device)
        if self._device.is_first:
            start_folder(folder, recipe, resumed=resumed)
        self._device.wait()
        self._callbacks = (callbacks if self._device.is_first else None) or RunCallbacks()
        seed_all(recipe.run.seed)
        try:
            self._trainable = build(recipe, folder)
        except BaseException:
            if self._device.is_first and not resumed:
                undo_start(folder)
            raise
        self._model = self._trainable.model.to(self._device.torch)
        broadcast_weights(self._model)
        self._optimiser = make_optimiser(self._trainable.groups(recipe.optimiser), recipe.optimiser)
        self._encode = AutocastEncoder(self._trainable.encoder, self._device)
        self._backward_step = backward_of(recipe.batching.split, recipe.batching.microbatch)
        self._dev_set: DevSet | None = None
        self._values: dict[int, float] = {}
        self._state: RunState | None = None
        self._curves: Curves | None = None
        self._interrupt = InterruptHandler()

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self._device.is_first

    def train(self) -> RunResult:
        """Makes the remaining steps. Ctrl-C during a step lets the step end, saves a checkpoint and raises
        KeyboardInterrupt; at any other time it raises at once, and the run resumes from the last checkpoint."""
        seed_all(self._recipe.run.seed, by_process=True)
        checkpoint = run_state.last_checkpoint(self._folder / CHECKPOINTS)
        if self._recipe.evaluation.data:
            self._dev_set = load_dev_set(self._recipe.evaluation, seed=self._recipe.run.seed)
        examples = None
        if checkpoint is not None:
            self._state = run_state.load(checkpoint, self._model, self._optimiser)
        else:
            examples = self._examples(0)
            self._state = self._first_state(examples)
        if self._device.is_first:
            self._curves = Curves(self._folder / CURVES, from_step=self._state.step)
        try:
            with self._interrupt:
                self._train_rounds(examples)
        finally:
            if self._curves is not None:
                self._curves.close()
        plotted = self._device.is_first and plot(self._folder / CURVES, self._folder / PLOT)
        return RunResult(self._state, self._folder, self._device.is_first, plotted, self._values)

    def _train_rounds(self, examples: ExampleStore | None) -> None:
        assert self._state is not None
        n_steps = self._state.n_steps
        while self._state.step < n_steps:
            number = round_at(self._recipe, self._state.step, n_steps)
            examples = examples or self._examples(number)
            try:
                self._train_round(examples, round_end(self._recipe, number, n_steps))
            finally:
                examples.close()
                examples = None
            self._save_checkpoint()  # before the next round is mined with these weights
        if self._dev_set is not None and self._state.step % self._recipe.evaluation.every:
            self._evaluate()
            self._save_checkpoint()
        self._save_model(FINAL, {})

    def _train_round(self, examples: ExampleStore, until: int) -> None:
        assert self._state is not None
        recipe = self._recipe
        stream = self._stream(examples, self._state.position)
        reports = steps(
            self._state.step,
            until=until,
            n_steps=self._state.n_steps,
            stream=stream,
            backward=self._backward,
            model=self._model,
            optimiser=self._optimiser,
            lr_factor=lr_schedule(recipe.optimiser, self._state.n_steps),
            clip=recipe.optimiser.clip,
        )
        for report in self._interrupt.uninterrupted(reports):
            self._state = replace(self._state, step=report.step, position=stream.position)
            self._record(report)
            self._callbacks.on_step(report)
            if self._dev_set is not None and self._state.step % recipe.evaluation.every == 0:
                self._evaluate()
            if self._state.step % recipe.run.save_every == 0:
                self._save_checkpoint()
            if any_process(self._interrupt.requested):
                self._save_checkpoint()
                raise KeyboardInterrupt

    def _record(self, report: StepReport) -> None:
        if self._curves is not None:
            parts = {name: round(value, 6) for name, value in report.parts.items()}
            pairs_per_s = round(report.n_pairs / max(report.seconds, 1e-9), 2)
            self._curves.add(
                report.step, loss=report.loss, parts=parts, norm=report.norm, lr=report.rate, pairs_per_s=pairs_per_s
            )

    def _backward(self, batch: TextBatch, step: int) -> Loss:
        trainable = self._trainable
        if trainable.pretraining_loss is not None:
            with self._device.precision():
                loss = trainable.pretraining_loss(batch.queries, step)
            (loss.total / n_processes()).backward()
            return loss
        if trainable.pair_losses is not None and batch.documents:
            return self._backward_pairs(trainable.pair_losses, batch)
        if trainable.loss_function is None or not batch.documents:
            raise ConfigError(
                "the data does not fit the loss: texts without passages are for RetroMAE, and every other loss needs "
                "queries with passages"
            )
        targets = batch_targets(batch, step=step, device=self._device.torch)
        # On the device before the step: a step that encodes twice saves the random state of its tokens' device.
        queries = to_device(trainable.texts.queries(batch.queries), self._device.torch)
        documents = to_device(trainable.texts.documents(batch.documents), self._device.torch)
        return self._backward_step(self._encode, trainable.loss_function, queries, documents, targets)

    def _backward_pairs(self, losses: PairLosses, batch: TextBatch) -> Loss:
        """In microbatches, so that only the pairs of one are in memory."""
        total, parts = torch.zeros((), device=self._device.torch), dict[str, float]()
        with self._device.precision():
            for loss, share in losses(batch):
                (loss.total * (share / n_processes())).backward()
                total += loss.total.detach() * share
                for name, value in loss.parts.items():
                    parts[name] = parts.get(name, 0.0) + value * share
        return LossValue(total, parts)

    def _evaluate(self) -> None:
        """Evaluates the model on the dev set, and saves it if it is the best so far."""
        assert self._state is not None
        config, value = self._recipe.evaluation, 0.0
        mode = config.mode or self._trainable.search_mode
        if self._device.is_first:
            assert self._dev_set is not None
            folder = self._folder / DATA / "evaluation-index"
            if self._trainable.evaluate is not None:
                value = self._trainable.evaluate(self._dev_set, config, folder)
            else:
                value = evaluate(self._torch_encoder(), self._dev_set, config, folder, mode=mode)
        value = from_first_process(value, self._device.torch)
        step, is_best = self._state.step, self._state.best is None or value > self._state.best
        self._values[step] = value
        if self._curves is not None:
            self._curves.add(step, measure=config.measure, value=value, mode=mode)
        if is_best:
            self._state = replace(self._state, best=value, best_step=step)
            about = {"measure": config.measure, "value": value, "data": config.data, "split": config.split}
            self._save_model(BEST, about | {"mode": mode})
        self._device.wait()
        self._callbacks.on_measure(step, config.measure, value, is_best)

    def _examples(self, number: int) -> ExampleStore:
        """The examples of a round; the first process stores them, the others read them."""
        open_miner: OpenMiner = index_miner
        if self._miner is not None:
            open_miner = prepare_round(
                self._recipe,
                self._folder / DATA,
                number,
                encoder=self._torch_encoder,
                miner=self._miner,
                any_process=any_process,
                wait=self._device.wait,
            )
        for is_my_turn in (True, False):
            if self._device.is_first == is_my_turn:
                examples = round_examples(
                    self._recipe,
                    self._folder / DATA,
                    number,
                    count_tokens=self._count_tokens,
                    encoder=self._torch_encoder,
                    on_mined=self._callbacks.on_mined,
                    open_miner=open_miner,
                )
            self._device.wait()
        return examples

    def _first_state(self, examples: ExampleStore) -> RunState:
        position = Position(self._recipe.run.seed)
        config = self._recipe.optimiser
        n_steps = config.steps or config.epochs * len(self._stream(examples, position))
        return RunState(n_steps=n_steps, position=position)

    def _stream(self, examples: ExampleStore, position: Position) -> Stream:
        by_label = {source.label: source.weight for source in self._recipe.data}
        weights = [by_label.get(name, 1.0) for name in examples.source_names]
        return Stream(examples, self._recipe.batching, position, weights=weights)

    def _save_checkpoint(self) -> None:
        assert self._state is not None
        run_state.save(self._folder / CHECKPOINTS, self._model, self._optimiser, self._state)

    def _save_model(self, name: str, about: dict[str, Any]) -> None:
        assert self._state is not None
        if self._device.is_first:
            save_model_folder(self._folder / name, self._trainable.save, {"step": self._state.step, **about})

    def _torch_encoder(self) -> TorchEncoder:
        step = 0 if self._state is None else self._state.step
        return TorchEncoder(
            self._trainable.encoder,
            self._trainable.texts,
            fingerprint=f"in training, step {step}",
            device=self._device.torch,
            vocabulary=self._trainable.vocabulary,
            sparse=self._trainable.sparse,
        )

    def _count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, read as a document."""
        lengths: list[int] = []
        for start in range(0, len(texts), BATCH_TEXTS):
            lengths += self._trainable.texts.documents(texts[start : start + BATCH_TEXTS]).mask.sum(dim=1).tolist()
        return lengths
