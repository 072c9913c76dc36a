"""Results of calls as JSON values, with their types: written by the origin library, compared with plait's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

DIGITS = 6


def describe(value: Any) -> Any:
    """Type, shape and content of a result. A tensor of torch and a number of numpy are numbers."""
    if isinstance(value, np.ndarray):
        values = np.round(value.astype(np.float64), DIGITS).ravel().tolist()
        return {"array": str(value.dtype), "shape": list(value.shape), "values": values}
    if isinstance(value, Mapping):
        return {"dict": {str(key): describe(one) for key, one in value.items()}}
    if isinstance(value, list | tuple):
        return {"list": [describe(one) for one in value]}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value
    return {"number": round(float(value), DIGITS)}


def differences(expected: Any, given: Any, tolerance: float, where: str = "") -> list[str]:
    """What differs between two descriptions: types, keys, shapes, and numbers by more than `tolerance`."""
    if not isinstance(expected, dict) or not isinstance(given, dict):
        return [] if expected == given and type(expected) is type(given) else [f"{where}: {given!r}, not {expected!r}"]
    if set(expected) != set(given):
        return [f"{where}: {sorted(given)}, not {sorted(expected)}"]
    if "number" in expected:
        near = abs(expected["number"] - given["number"]) <= tolerance
        return [] if near else [f"{where}: {given['number']}, not {expected['number']}"]
    if "array" in expected:
        if (expected["array"], expected["shape"]) != (given["array"], given["shape"]):
            return [f"{where}: {given['array']} {given['shape']}, not {expected['array']} {expected['shape']}"]
        distance = np.abs(np.subtract(expected["values"], given["values"])).max(initial=0)
        return [] if distance <= tolerance else [f"{where}: values differ by {distance}"]
    if "list" in expected:
        pairs = list(enumerate(zip(expected["list"], given["list"], strict=False)))
        found_differences = [d for at, pair in pairs for d in differences(*pair, tolerance, f"{where}[{at}]")]
        n_expected, n_given = len(expected["list"]), len(given["list"])
        return found_differences if n_expected == n_given else [f"{where}: {n_given} items, not {n_expected}"]
    if set(expected["dict"]) != set(given["dict"]):
        return [f"{where}: keys {list(given['dict'])}, not {list(expected['dict'])}"]
    each = expected["dict"].items()
    return [d for key, one in each for d in differences(one, given["dict"][key], tolerance, f"{where}.{key}")]
