"""The compatible classes and their origins: the same parameters, and the same results of the same calls.

`origin/*.json` was written by the libraries themselves (`compat.make_origin`), on checkpoints with random weights.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from compat.calls import flag_calls, pooled_documents, pylate_calls, ragatouille_calls
from compat.conftest import Converted, origin
from compat.described import describe, differences
from compat.signatures import CALLS, signatures

LIBRARIES = ("pylate", "ragatouille", "flagembedding")
TOLERANCE = 1e-4
STORED = 0.02  # of scores from an index, which stores vectors as float16
OF_INDEXES = ("retrieved", "retrieved for one", "after removal", "nearest vectors")


def shape_of(library: str) -> Any:
    return importlib.import_module(f"plait.compat.{library}")


@pytest.mark.parametrize("library", LIBRARIES)
def test_parameters_and_defaults_are_those_of_the_origin(library: str) -> None:
    expected = origin(library)["signatures"]
    given = signatures(shape_of(library), CALLS[library])
    assert set(expected) == set(given)
    for call, parameters in expected.items():
        assert given[call] == parameters, call


def compare(library: str, results: dict[str, Any]) -> None:
    expected = origin(library)["results"]
    assert set(expected) == set(results)
    wrong = []
    for name, value in results.items():
        tolerance = STORED if name in OF_INDEXES else TOLERANCE
        wrong += differences(expected[name], describe(value), tolerance, name)
    assert wrong == []


def test_pylate_gives_the_same_results(converted: Converted, tmp_path: Path) -> None:
    pylate, folder = shape_of("pylate"), converted("pylate-bert")
    results = pylate_calls(pylate, folder, str(tmp_path), {})
    compare("pylate", results | {"pooled": pooled_documents(pylate, folder, {})})


def test_flagembedding_gives_the_same_results(converted: Converted) -> None:
    names = {"bge-m3": "bge-m3", "dense": "st-bert-cls", "bge-reranker": "bge-reranker"}
    folders = {name: converted(folder) for name, folder in names.items()}
    compare("flagembedding", flag_calls(shape_of("flagembedding"), folders, {"use_fp16": False}))


def test_ragatouille_gives_the_same_results(converted: Converted) -> None:
    compare("ragatouille", ragatouille_calls(shape_of("ragatouille").RAGPretrainedModel, converted("stanford")))


def test_a_difference_is_found() -> None:
    expected = describe({"a": [1.0, "x"], "n": 3})
    assert differences(expected, describe({"a": [1.0, "x"], "n": 3}), 0.1) == []
    for other in ({"a": [1.2, "x"], "n": 3}, {"a": [1.0], "n": 3}, {"a": [1.0, "x"]}, {"a": (1.0, 2.0), "n": 3.0}):
        assert differences(expected, describe(other), 0.1)
