"""Arguments that plait cannot honour are refused, or warned about; none is ignored without a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.compat import CompatWarning
from plait.compat.flagembedding import BGEM3FlagModel, FlagModel, FlagReranker
from plait.compat.pylate import indexes, models, retrieve
from plait.compat.ragatouille import RAGPretrainedModel
from plait.errors import ConfigError, InputError, ModelError, NotAnIndexError, StoreError

MODEL = "plait-small"
REFUSED: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (models.ColBERT, {"modules": [1]}),
    (models.ColBERT, {"similarity_fn_name": "cosine"}),
    (models.ColBERT, {"token": "secret"}),
    (models.ColBERT, {"truncate_dim": 64}),
    (models.ColBERT, {"embedding_size": 64}),
    (models.ColBERT, {"bias": True}),
    (models.ColBERT, {"truncation": False}),
    (models.ColBERT, {"model_kwargs": {"attn_implementation": "sdpa"}}),
    (models.ColBERT, {"model_kwargs": {"dtype": "float64"}}),
    (models.ColBERT, {"tokenizer_kwargs": {"padding_side": "left"}}),
    (models.ColBERT, {"device": "mps"}),
    (models.ColBERT, {"revision": "v1"}),
    (models.ColBERT, {"query_prefix": "[no such token]"}),
    (BGEM3FlagModel, {"normalize_embeddings": False}),
    (BGEM3FlagModel, {"pooling_method": "last_token"}),
    (BGEM3FlagModel, {"colbert_dim": 7}),
    (BGEM3FlagModel, {"devices": ["cpu", "cuda:0"]}),
    (BGEM3FlagModel, {"unknown": 1}),
    (FlagModel, {"convert_to_numpy": False}),
    (FlagReranker, {"query_max_length": 9}),
]
WARNED: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (models.ColBERT, {"cache_folder": "cache"}),
    (models.ColBERT, {"trust_remote_code": True}),
    (models.ColBERT, {"model_kwargs": {"dtype": "float32"}}),  # the bundled model has int8 only
    (BGEM3FlagModel, {"cache_dir": "cache"}),
    (BGEM3FlagModel, {"use_fp16": False}),
]
OF_PLAID = [
    {"use_fast": False},
    {"kmeans_niters": 8},
    {"seed": 1},
    {"batch_size": 2},
    {"low_memory": True},
    {"device": "cuda"},
    {"ncells": 4},
]


@pytest.mark.parametrize(("call", "arguments"), REFUSED, ids=[str(arguments) for _, arguments in REFUSED])
def test_what_results_depend_on_is_refused(call: Callable[..., Any], arguments: dict[str, Any]) -> None:
    name = next(iter(arguments)) if "prefix" not in next(iter(arguments)) else "no such token"
    with pytest.raises((ConfigError, ModelError), match="dtype" if name == "model_kwargs" else name):
        call(MODEL, **arguments)


@pytest.mark.parametrize(("call", "arguments"), WARNED, ids=[str(arguments) for _, arguments in WARNED])
def test_what_no_result_depends_on_is_warned_about_where_it_is_given(
    call: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    with pytest.warns(CompatWarning, match="no effect|no precision") as warned:
        call(MODEL, **arguments)
    assert warned[0].filename == __file__


@pytest.mark.parametrize("arguments", OF_PLAID, ids=str)
def test_settings_of_another_engine_are_warned_about(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.warns(CompatWarning, match=next(iter(arguments))):
        indexes.PLAID(str(tmp_path), **arguments)


def test_unknown_keywords_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nbit is 2; plait's PLAID does not take it"):
        indexes.PLAID(str(tmp_path), nbit=2)
    with pytest.raises(ConfigError, match="bits"):
        indexes.PLAID(str(tmp_path), nbits=3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"convert_to_tensor": True},
        {"convert_to_numpy": False},
        {"precision": "int8"},
        {"normalize_embeddings": False},
        {"output_value": None},
        {"device": "cuda"},
        {"batch_size": 0},
    ],
    ids=str,
)
def test_results_of_other_kinds_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        models.ColBERT(MODEL).encode(["a text"], **arguments)


def test_a_prompt_without_a_text_is_an_error_of_value() -> None:
    with pytest.raises(ValueError, match="prompt_name is 'none'"):
        models.ColBERT(MODEL).encode("a text", prompt_name="none")


def test_a_folder_of_another_engine_is_neither_opened_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "plan.json").write_text("{}")
    with pytest.raises(NotAnIndexError, match="plait import"):
        indexes.PLAID(str(tmp_path), "old")
    with pytest.raises(StoreError, match="in the way"):
        indexes.PLAID(str(tmp_path), "old", override=True)
    with pytest.raises(NotAnIndexError, match="plait import"):
        RAGPretrainedModel.from_index(tmp_path / "old")
    assert (tmp_path / "old" / "plan.json").exists()


def test_an_empty_index_and_a_retriever_without_one_say_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="The index is empty"):
        indexes.PLAID(str(tmp_path))([[1.0]])
    with pytest.raises(ConfigError, match="index is"):
        retrieve.ColBERT(index="an index")  # type: ignore[arg-type]


def test_wrong_vectors_and_ids_are_errors(tmp_path: Path) -> None:
    index = indexes.PLAID(str(tmp_path))
    with pytest.raises(InputError, match="1 documents_ids were given for 2"):
        index.add_documents(["a"], [[[1.0]], [[1.0]]])
    with pytest.raises(InputError, match="ids are text or whole numbers"):
        index.add_documents([1.5], [[[1.0]]])  # type: ignore[list-item]
    with pytest.raises(InputError, match="an id twice"):
        index.add_documents(["a", "a"], [[[1.0]], [[1.0]]])


def test_a_model_without_the_needed_vectors_is_refused() -> None:
    with pytest.raises(ModelError, match="use BGEM3FlagModel or FlagModel"):
        FlagReranker(MODEL)


def test_a_longer_text_than_the_model_takes_gives_a_warning() -> None:
    model = FlagModel(MODEL)
    with pytest.warns(CompatWarning, match="max_length is 8192, and plait-small takes 512"):
        model.encode("a text", max_length=8192)
