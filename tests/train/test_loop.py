"""Ctrl-C between steps."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from plait.train.loop import InterruptHandler


@pytest.fixture
def sigint() -> Iterator[None]:
    """Python's own handler, also where the tests were started in the background, which ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
def test_the_first_ctrl_c_waits_for_the_step_the_second_does_not() -> None:
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
def test_ctrl_c_between_steps_does_not_wait() -> None:
    with InterruptHandler() as handler, pytest.raises(KeyboardInterrupt):
        [signal.raise_signal(signal.SIGINT) for _ in handler.uninterrupted(iter([1, 2]))]  # type: ignore[func-returns-value]
    assert not handler.requested
