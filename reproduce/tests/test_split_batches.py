from __future__ import annotations

import pytest

pytest.importorskip("torch")

from plait_reproduce.training.split_batches import gradient_and_memory


def test_split_batches_have_the_gradient_of_the_whole_batch() -> None:
    found = gradient_and_memory(n_texts=3, length=8, parts=[1, 2])
    differences = {name: value for name, value in found.items() if name.endswith("difference")}
    assert len(differences) == 5
    assert max(differences.values()) < 1e-4
