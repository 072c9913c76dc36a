"""The graph that `models/scripts/build_multilingual.py` writes, against NumPy."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from multilingual_graph import WINDOWS, build_graph, packed
from plait.graphs.builder import Linear

Floats = NDArray[np.float32]
DIM, WIDTH, OUT = 16, 8, 12
TEXTS = [[3, 1, 4, 1, 5], [9], [2, 6]]


def random_weights(rng: np.random.Generator) -> dict[str, Floats]:
    def drawn(*shape: int) -> Floats:
        return np.asarray(rng.standard_normal(shape) / np.sqrt(shape[0]), np.float32)

    weights: dict[str, Floats] = {
        "eps": np.array(1e-6, np.float32),
        "ln_g": drawn(DIM + 3 * WIDTH),
        "ln_b": drawn(DIM + 3 * WIDTH),
    }
    for n, _ in WINDOWS:
        weights |= {
            f"proj{n}": drawn(DIM, WIDTH),
            f"w1_{n}": drawn(n * WIDTH, WIDTH),
            f"w2_{n}": drawn(n * WIDTH, WIDTH),
        }
        weights |= {f"{name}{n}": drawn(WIDTH) for name in ("proj_b", "ln_g", "ln_b", "b1_", "b2_")}
    weights |= {"cnn_W": drawn(DIM + 3 * WIDTH, OUT), "cnn_b": drawn(OUT), "d0": drawn(OUT, 6), "d1": drawn(6, 6)}
    return weights | {"p1": drawn(OUT, 6), "d2": drawn(6, OUT), "p3": drawn(6, OUT), "d3": drawn(OUT, OUT)}


def normed(rows: Floats, gain: Floats, shift: Floats) -> Floats:
    centred = rows - rows.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)
    return np.asarray(centred / spread * gain + shift, np.float32)


def window(rows: Floats, n: int, before: int) -> Floats:
    """Each row beside its neighbours, one by one; zeros beyond the text."""
    found = np.zeros((len(rows), n * rows.shape[1]), np.float32)
    for place in range(len(rows)):
        for slot in range(n):
            if 0 <= place + slot - before < len(rows):
                found[place, slot * rows.shape[1] : (slot + 1) * rows.shape[1]] = rows[place + slot - before]
    return found


def plain(vectors: Floats, w: dict[str, Floats]) -> tuple[Floats, Floats]:
    """The dense vector and the states of one text, from the vectors of its pieces."""
    entered = np.concatenate([vectors @ w[f"proj{n}"] + w[f"proj_b{n}"] for n, _ in WINDOWS], axis=1)
    gain, shift = (np.concatenate([w[f"{part}{n}"] for n, _ in WINDOWS]) for part in ("ln_g", "ln_b"))
    parts = [vectors]
    for (n, before), value in zip(WINDOWS, np.split(normed(entered, gain, shift), 3, axis=1), strict=True):
        for layer in (1, 2):
            value = np.maximum(window(value, n, before) @ w[f"w{layer}_{n}"] + w[f"b{layer}_{n}"], 0) + value
        parts.append(value)
    states = normed(np.concatenate(parts, axis=1), w["ln_g"], w["ln_b"]) @ w["cnn_W"] + w["cnn_b"]
    mean = states.sum(axis=0) / np.sqrt(len(states))
    middle = np.maximum(mean @ w["p1"] + np.maximum(mean @ w["d0"], 0) @ w["d1"], 0)
    above = np.tanh(middle @ w["p3"] + np.maximum(middle @ w["d2"], 0) @ w["d3"])
    return above / np.linalg.norm(above), states


def unpacked(codes: NDArray[np.uint8], ranges: NDArray[np.float16]) -> Floats:
    steps: Floats = np.concatenate([codes & 15, codes >> 4], axis=1).astype(np.float32)
    return steps * ranges[:, :1].astype(np.float32) + ranges[:, 1:].astype(np.float32)


@pytest.mark.parametrize("int8", [False, True])
def test_the_graph_agrees_with_numpy(int8: bool) -> None:
    rng = np.random.default_rng(0)
    table, weights = rng.standard_normal((10, DIM)).astype(np.float32), random_weights(rng)
    multi = Linear(rng.standard_normal((OUT, 4)).astype(np.float32), rng.standard_normal(4).astype(np.float32))
    session = onnxruntime.InferenceSession(build_graph(table, weights, multi, int8=int8))
    ids, mask = np.zeros((3, 5), np.int64), np.zeros((3, 5), np.int64)
    for number, text in enumerate(TEXTS):
        ids[number, : len(text)], mask[number, : len(text)] = text, 1
    dense, rows = session.run(["dense", "multi"], {"input_ids": ids, "attention_mask": mask})
    vectors = unpacked(*packed(table)) if int8 else table
    assert multi.bias is not None
    for number, text in enumerate(TEXTS):
        wanted, states = plain(vectors[text], weights)
        mapped = states @ multi.weight + multi.bias
        mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
        np.testing.assert_allclose(dense[number], wanted, atol=0.05 if int8 else 1e-5)
        np.testing.assert_allclose(rows[number, : len(text)], mapped, atol=0.05 if int8 else 1e-5)


def test_four_bit_codes_are_at_most_half_a_step_off() -> None:
    table = np.random.default_rng(1).standard_normal((20, DIM)).astype(np.float32)
    table[3] = 0.5  # a row that does not vary
    codes, ranges = packed(table)
    assert codes.shape == (20, DIM // 2)
    off = np.abs(unpacked(codes, ranges) - table)
    assert (off <= ranges[:, :1].astype(np.float32) * 0.52 + 1e-3).all()
