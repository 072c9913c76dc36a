"""The weights of multilingual-e5-small from a file of 4-bit blocks."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from multilingual_e5_source import MAGIC, Sizes, check_tokenizer, original_name, read_image, read_tensor

SIZES = Sizes(32, 1, 2, 64, 4, 3, 2)


def quantised(values: list[int], scale: float) -> bytes:
    """One block, value by value: byte j holds value j in its low and value j + 16 in its high bits."""
    return struct.pack("<e", scale) + bytes(values[j] | values[j + 16] << 4 for j in range(16))


def image(tensors: dict[str, tuple[int, bytes]], pieces: list[str]) -> bytes:
    """A file as the package has it, with as many tensors as are given."""
    sizes = (SIZES.hidden, SIZES.n_layers, SIZES.n_heads, SIZES.n_inner, SIZES.n_ids, SIZES.n_positions, SIZES.n_types)
    texts = [piece.encode() for piece in pieces]
    offsets = np.cumsum([0, *(len(text) for text in texts)]).astype("<u4")
    blob = b"".join(texts)
    head = MAGIC + struct.pack("<I7ifi", 1, *sizes, 1e-12, 32) + struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, len(blob))
    head += offsets.tobytes() + np.zeros(len(pieces), "<f4").tobytes() + blob
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 65, 1, 97)  # the normaliser's table
    entries = sum(2 + len(name) + struct.calcsize("<BIQQ") for name in tensors)
    start, directory, body = len(head) + 4 + entries, struct.pack("<i", len(tensors)), b""
    for name, (kind, raw) in tensors.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, 0, start + len(body), len(raw))
        body += raw
    return head + directory + body


def test_a_file_is_read_as_it_was_written() -> None:
    values = [(7 * number) % 16 for number in range(32)]
    matrix = b"".join(quantised(values, scale) for scale in (0.5, 0.25))
    last = b"".join(quantised(values, 1.0) for _ in range(2))
    tensors = {"l0.q.w": (1, matrix), "l0.fo.w": (1, last), "emb.ln.b": (0, np.arange(32, dtype="<f4").tobytes())}
    sizes, pieces, weights = read_image(image(tensors, ["<s>", "▁ab", "ü"]))
    assert sizes == SIZES
    assert pieces == ["<s>", "▁ab", "ü"]
    expected = np.array([(value - 8) * 0.5 for value in values])
    assert np.array_equal(weights["encoder.layer.0.attention.self.query.weight"], [expected, expected / 2])
    assert weights["encoder.layer.0.output.dense.weight"].shape == (1, 64)
    assert weights["embeddings.LayerNorm.bias"].tolist() == list(range(32))


def test_names_are_those_of_the_original_checkpoint() -> None:
    assert original_name("emb.word") == "embeddings.word_embeddings.weight"
    assert original_name("l11.oln.b") == "encoder.layer.11.output.LayerNorm.bias"


def test_plain_values_stay() -> None:
    assert read_tensor(np.array([1.5, -2], "<f4").tobytes(), 0).tolist() == [1.5, -2]


def test_another_file_or_tokenizer_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with b'GGUF'"):
        read_image(b"GGUF" + bytes(64))
    with pytest.raises(ValueError, match="1 of them not those of the weights"):
        check_tokenizer('{"model": {"vocab": [["a", 0], ["b", 0]]}}', ["a", "c"])
