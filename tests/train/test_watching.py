"""What surrounds a step: rates, curves, encoders, evaluation, stopping."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from encoders import WordEncoder
from plait.errors import ConfigError
from plait.train import run_folder as curves
from plait.train.evaluation import evaluate, load_dev_set
from plait.train.loop import InterruptHandler
from plait.train.optimiser import OptimiserConfig, lr_schedule, make_optimiser
from plait.train.recipe import EvaluationConfig
from plait.train.run_folder import Curves, plot, read_curves
from plait.train.torch_encoder import TorchEncoder
from train.corpora import write_beir
from train.small import SmallModel, SmallTexts


def test_the_rate_warms_up_and_comes_down() -> None:
    line = lr_schedule(OptimiserConfig(warmup=0.2, schedule="linear"), 10)
    assert [round(line(step), 3) for step in range(10)] == [
        0.333,
        0.667,
        1,
        0.875,
        0.75,
        0.625,
        0.5,
        0.375,
        0.25,
        0.125,
    ]
    cosine = lr_schedule(OptimiserConfig(warmup=2, schedule="cosine"), 10)
    assert cosine(2) == 1.0
    assert cosine(6) == pytest.approx(0.5)
    assert lr_schedule(OptimiserConfig(warmup=0, schedule="constant"), 10)(9) == 1.0
    cut = lr_schedule(OptimiserConfig(warmup=0.2, schedule="linear", steps=5, schedule_steps=10), 5)
    assert [cut(step) for step in range(5)] == [line(step) for step in range(5)]
    with pytest.raises(ConfigError, match="schedule_steps is 4 and steps is 5"):
        OptimiserConfig(steps=5, schedule_steps=4)


def test_a_model_of_which_nothing_is_trained_is_refused() -> None:
    with pytest.raises(ConfigError, match="freeze fewer layers"):
        make_optimiser([{"params": [], "lr": 1.0}], OptimiserConfig())


def test_curves_drop_what_came_after_the_step_that_a_run_goes_on_from(tmp_path: Path) -> None:
    path = tmp_path / "curves.jsonl"
    path.write_text("".join(json.dumps({"step": step, "loss": 1.0}) + "\n" for step in range(1, 6)) + '{"step": 6, "lo')
    again = Curves(path, from_step=3)
    again.add(4, loss=0.5)
    again.close()
    assert [(line["step"], line["loss"]) for line in read_curves(path)] == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 0.5)]


def test_without_matplotlib_there_is_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "find_spec", lambda _: None)
    assert not plot(tmp_path / "curves.jsonl", tmp_path / "curves.png")


def test_a_model_in_training_encodes_in_the_order_of_the_texts_without_dropout() -> None:
    model = SmallModel(dropout=0.9).train()
    encoder = TorchEncoder(model, SmallTexts(), fingerprint="now")
    texts = ["one", "a text of several words", "two words"]
    together = encoder.encode_documents(texts)
    alone = [encoder.encode_documents([text]) for text in texts]
    assert together.dense is not None
    assert together.multi is not None
    np.testing.assert_allclose(
        together.dense, np.concatenate([one.dense for one in alone if one.dense is not None]), atol=1e-6
    )
    assert np.diff(together.multi.offsets).tolist() == [1, 5, 2]
    assert model.training


def test_evaluation_keeps_what_was_judged_and_measures_by_searching(tmp_path: Path) -> None:
    config = EvaluationConfig(data=str(write_beir(tmp_path / "set")), n_documents=20, n_queries=5)
    dev_set = load_dev_set(config, seed=0)
    assert len(dev_set.queries) == 5
    assert len(dev_set.documents) == 20
    assert {id for of_query in dev_set.qrels.values() for id in of_query} <= {
        document.id for document in dev_set.documents
    }
    assert evaluate(WordEncoder(), dev_set, config, tmp_path / "index") > 0.6
    assert not (tmp_path / "index").exists()


@pytest.fixture
def sigint() -> Iterator[None]:
    """Python's own handler, also where the tests were started in the background, which ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
def test_ctrl_c_waits_for_the_item_under_way_and_not_twice() -> None:
    made = []

    def items() -> Iterator[int]:
        for number in range(3):
            signal.raise_signal(signal.SIGINT)
            made.append(number)
            yield number

    with InterruptHandler() as handler, pytest.raises(KeyboardInterrupt):
        list(handler.uninterrupted(items()))
    assert handler.requested
    assert made == [0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("sigint")
def test_ctrl_c_between_items_does_not_wait() -> None:
    with InterruptHandler() as handler, pytest.raises(KeyboardInterrupt):
        [signal.raise_signal(signal.SIGINT) for _ in handler.uninterrupted(iter([1, 2]))]  # type: ignore[func-returns-value]
    assert not handler.requested
