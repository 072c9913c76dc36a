"""Fingerprints of live encoders: which weights and settings made the vectors of an index.

A model in this process is known by its weights. A model elsewhere (an endpoint, a callable, another runtime) is known
by its name, its settings and a sketch: some numbers of the embeddings of fixed texts. Such a model rarely repeats its
numbers to the last bit, so sketches are compared with a tolerance; see `same_fingerprint`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.adapters.outputs import plain_numbers
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import LIVE
from plait.errors import ModelError

# Texts whose embeddings identify a model. A change here changes every fingerprint with a sketch.
PROBE_TEXTS = (
    "The heart pumps blood through the body.",
    "How do I install a package with pip?",
    "Das Wetter in Zürich ist heute schön, 23 °C.",
    "naïve café, 東京タワー, İstanbul: 1,234.56 €!",
)
SKETCH_NUMBERS = 64  # for queries, and as many for documents
# Other hardware or another precision gives a cosine above 0.999; another model one near 0.
MIN_SKETCH_COSINE = 0.998
# Values of all weights up to which each of them is hashed; of larger models, evenly spaced ones.
MAX_HASHED_VALUES = 2_000_000_000
# Wrappers that add a part to the names of weights: those of libraries, of torch.compile and of data parallelism.
WRAPPER_NAMES = {"auto_model", "model", "module", "_orig_mod"}
_SKETCH = ":~"


def weights_fingerprint(library: str, weights: str, settings: Mapping[str, Any]) -> str:
    """The fingerprint of a model in this process. Its name is no part: a copied folder is the same model."""
    return f"{LIVE}{library}:{_digest([weights, settings])}"


def sketch_fingerprint(
    library: str, name: str, settings: Mapping[str, Any], documents: Embeddings, queries: Embeddings
) -> str:
    """The fingerprint of a model elsewhere; `documents` and `queries` are the embeddings of PROBE_TEXTS."""
    numbers = np.concatenate([_sketch(documents), _sketch(queries)])
    sketch = base64.urlsafe_b64encode(numbers.tobytes()).decode().rstrip("=")
    return f"{LIVE}{library}:{name}:{_digest([name, settings])}{_SKETCH}{sketch}"


def same_fingerprint(one: str, other: str) -> bool:
    """Whether two fingerprints are of one model: equal, or equal but for sketches that are close."""
    if one == other:
        return True
    (head, _, sketch), (other_head, _, other_sketch) = one.rpartition(_SKETCH), other.rpartition(_SKETCH)
    if not head or head != other_head:
        return False
    numbers, other_numbers = _numbers(sketch), _numbers(other_sketch)
    if len(numbers) != 2 * SKETCH_NUMBERS or len(other_numbers) != len(numbers):
        return False
    halves = zip(np.split(numbers, 2), np.split(other_numbers, 2), strict=True)
    return all(_cosine(half, other_half) >= MIN_SKETCH_COSINE for half, other_half in halves)


def weights_digest(model: object) -> str | None:
    """A digest of the names, shapes and values of a torch model's weights; None for a model that has none.

    Values are hashed in half precision, so that a model has one digest in single and in half precision.
    """
    state_dict = getattr(model, "state_dict", None)
    tensors = [] if state_dict is None else sorted(_tensors(state_dict()), key=lambda named: named[0])
    if not tensors:
        return None
    n_values = sum(int(tensor.numel()) for _, tensor in tensors)
    stride = -(-n_values // MAX_HASHED_VALUES)
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name}{tuple(tensor.shape)}{stride}".encode())
        digest.update(_value_bytes(tensor, stride))
    return digest.hexdigest()


def module_settings(model: Any, names: tuple[str, ...], packages: tuple[str, ...]) -> list[Any]:
    """What the modules of `packages` in a torch model do: their classes, in order, and their settings of these names.

    Class paths and whole configurations are left out: libraries move and extend them between versions.
    """
    facts: list[Any] = []
    for module in model.modules():
        if type(module).__module__.split(".")[0] in packages:
            values = {name: _setting(module, name) for name in names}
            facts.append([type(module).__name__, {name: value for name, value in values.items() if value is not None}])
    return facts


def _setting(module: Any, name: str) -> Any:
    value = getattr(module, name, None)
    if name == "pooling_mode":  # a text or a list; before version 6 of sentence-transformers a method
        value = module.get_pooling_mode_str().split("+") if hasattr(module, "get_pooling_mode_str") else value
        value = [value] if isinstance(value, str) else value
    return _plain(value)


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((_bare_name(name), value) for name, value in state.items() if hasattr(value, "numel"))


def _bare_name(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPER_NAMES)


def _value_bytes(tensor: Any, stride: int) -> bytes:
    values = tensor.detach().reshape(-1)[::stride]
    if values.is_floating_point():
        return bytes(values.half().cpu().numpy().tobytes())
    return bytes(values.cpu().numpy().tobytes())


def _plain(value: object) -> Any:
    """A setting as JSON: numbers, text, lists and mappings as they are, an object by its class."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return type(value).__name__


def _digest(facts: object) -> str:
    canonical = json.dumps(_plain(facts), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _sketch(embeddings: Embeddings) -> NDArray[np.int8]:
    """SKETCH_NUMBERS numbers of the embeddings, all kinds together, scaled to -127 to 127."""
    kinds = [_kind_sketch(kind) for kind in embeddings.present().values()]
    sketch = np.concatenate([kind[:: len(kinds)] for kind in kinds])[:SKETCH_NUMBERS]
    sketch = np.pad(sketch, (0, SKETCH_NUMBERS - len(sketch)))
    largest = float(np.abs(sketch).max())
    if largest == 0:
        raise ModelError(
            "the model gave only zeros for texts that are not empty, so its vectors cannot be compared; check that its "
            "weights are loaded"
        )
    return np.rint(sketch * (127 / largest)).astype(np.int8)


def _kind_sketch(kind: NDArray[np.float32] | SparseVectors | MultiVectors) -> NDArray[np.float64]:
    """SKETCH_NUMBERS numbers of length 1: evenly spaced values, or sums of the weights of terms by their remainder."""
    if isinstance(kind, SparseVectors):
        items = np.repeat(np.arange(len(kind)), np.diff(kind.offsets))
        buckets = (kind.terms + items) % SKETCH_NUMBERS
        numbers = np.bincount(buckets, kind.weights.astype(np.float64), SKETCH_NUMBERS).astype(np.float64)
    else:
        values = np.asarray(plain_numbers(kind.values if isinstance(kind, MultiVectors) else kind), np.float64).ravel()
        numbers = values[np.linspace(0, len(values) - 1, SKETCH_NUMBERS).astype(np.int64)]
    length = float(np.linalg.norm(numbers))
    return numbers / length if length else numbers


def _numbers(sketch: str) -> NDArray[np.float64]:
    try:
        return np.frombuffer(base64.urlsafe_b64decode(sketch + "=" * (-len(sketch) % 4)), np.int8).astype(np.float64)
    except ValueError:
        return np.zeros(0)


def _cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(one @ other / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-12))
