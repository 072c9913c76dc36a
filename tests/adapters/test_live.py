"""What plait adds to any live model: batches, order, checks, passages, threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from adapters import fakes
from plait.adapters import FunctionEncoder
from plait.adapters.tokenizer import LiveTokenizer
from plait.encode.chunking import chunker_for
from plait.encode.protocol import TermReader, TokenReader
from plait.errors import ConfigError, InputError, ModelError
from plait.records import Span

TEXTS = ["one", "a text that is much longer than the others are", "two", "", "tiny text", "ten"]


def lengths(texts: list[str]) -> Any:
    return [[float(len(text)), 1.0] for text in texts]


def letter_rows(texts: list[str]) -> list[Any]:
    return [np.array([[float(ord(letter)), 1.0] for letter in text], np.float32).reshape(-1, 2) for text in texts]


def letter_weights(texts: list[str]) -> list[dict[int, float]]:
    return [{ord(letter): 1.0 for letter in text} for text in texts]


def test_embeddings_come_back_in_the_order_of_the_texts() -> None:
    encoder = FunctionEncoder(lengths, name="lengths", batch_size=2)
    dense = encoder.encode_documents(TEXTS).dense
    assert dense is not None
    assert dense[:, 0].tolist() == [len(text) for text in TEXTS]
    multi = FunctionEncoder(letter_rows, kind="multi", name="rows", batch_size=2).encode_documents(TEXTS).multi
    assert multi is not None
    assert [len(multi[number]) for number in range(len(TEXTS))] == [len(text) for text in TEXTS]
    sparse = FunctionEncoder(letter_weights, kind="sparse", name="w", batch_size=2).encode_documents(TEXTS).sparse
    assert sparse is not None
    assert [sparse[number][0].tolist() for number in (0, 3)] == [sorted(map(ord, "one")), []]


def test_texts_of_similar_length_share_a_batch_and_progress_is_reported() -> None:
    batches: list[list[str]] = []

    def recorded(texts: list[str]) -> Any:
        batches.append(texts)
        return lengths(texts)

    encoder = FunctionEncoder(recorded, name="lengths", batch_size=2)
    batches.clear()
    progress: list[tuple[int, int]] = []
    encoder.encode_documents(TEXTS, on_batch=lambda done, total: progress.append((done, total)))
    assert [[len(text) for text in batch] for batch in batches] == [[46, 9], [3, 3], [3, 0]]
    assert progress == [(2, 6), (4, 6), (6, 6)]


def test_a_batch_holds_few_texts_if_they_are_long() -> None:
    sizes: list[int] = []

    def recorded(texts: list[str]) -> Any:
        sizes.append(len(texts))
        return lengths(texts)

    encoder = FunctionEncoder(recorded, name="lengths")
    sizes.clear()
    encoder.encode_documents(["x" * 40_000] * 3 + ["y"] * 5)
    assert sizes == [1, 1, 1, 5]


def test_no_texts_give_no_embeddings_and_no_call() -> None:
    encoder = FunctionEncoder(lengths, name="lengths")
    empty = encoder.encode_queries([])
    assert empty.dense is not None
    assert empty.dense.shape == (0, 2)


@pytest.mark.parametrize("texts", [["a", None], ["a", 7], ["a", "\ud800"], "abc", 7])
def test_texts_that_are_no_texts_are_refused(texts: Any) -> None:
    encoder = FunctionEncoder(lengths, name="lengths")
    with pytest.raises(InputError):
        encoder.encode_documents(texts)


def test_a_model_that_changes_after_it_was_opened_is_refused() -> None:
    dim = [2]
    encoder = FunctionEncoder(lambda texts: np.ones((len(texts), dim[0])), name="m")
    dim[0] = 3
    with pytest.raises(ModelError, match=r"\{'dense': 3\}, but of \{'dense': 2\}"):
        encoder.encode_documents(["a"])


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda texts: np.ones((len(texts) - 1, 2)), "for 4 texts"),
        (lambda texts: np.full((len(texts), 2), np.nan), "NaN"),
        (lambda _: [[1.0], [1.0, 2.0], [1.0], [1.0]], "rows of one length"),
        (lambda _: None, "no array of numbers"),
    ],
)
def test_wrong_output_is_refused_when_the_encoder_is_made(output: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        FunctionEncoder(output, name="wrong")


def test_queries_and_documents_must_have_one_dimension() -> None:
    with pytest.raises(ModelError, match="same kinds and dimensions"):
        FunctionEncoder(lengths, lambda texts: np.ones((len(texts), 3)), name="two")


def test_queries_may_have_a_function_of_their_own() -> None:
    encoder = FunctionEncoder(lengths, lambda texts: -np.array(lengths(texts)), name="two")
    assert encoder.encode_queries(["abc"]).dense.tolist() == [[-3.0, -1.0]]  # type: ignore[union-attr]
    assert encoder.encode_documents(["abc"]).dense.tolist() == [[3.0, 1.0]]  # type: ignore[union-attr]


def test_vectors_are_normalized_on_request() -> None:
    plain, unit = (FunctionEncoder(lengths, name="m", normalize=normalize) for normalize in (False, True))
    assert plain.encode_documents(["abc"]).dense.tolist() == [[3.0, 1.0]]  # type: ignore[union-attr]
    np.testing.assert_allclose(np.linalg.norm(unit.encode_documents(TEXTS).dense, axis=1), 1, rtol=1e-6)  # type: ignore[arg-type]
    assert plain.fingerprint != unit.fingerprint


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": None},
        {"kind": "colbert"},
        {"batch_size": 0},
        {"concurrent": "yes"},
        {"normalize": 1},
        {"queries": "text"},
        {"tokenizer": object()},
        {"passage_tokens": 0},
        {"length": 64, "passage_tokens": 65},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FunctionEncoder(lengths, **({"name": "m"} | options))


def test_a_sparse_function_has_the_vocabulary_of_its_matrix_or_the_one_that_is_given() -> None:
    def matrix(texts: list[str]) -> Any:
        return np.eye(9)[: len(texts)] if len(texts) > 1 else np.eye(1, 9, 8)

    assert FunctionEncoder(matrix, kind="sparse", name="m").spec.sparse == 9
    assert FunctionEncoder(letter_weights, kind="sparse", name="m", vocabulary=70_000).spec.sparse == 70_000
    with pytest.raises(ModelError, match="its vocabulary has 128 terms"):
        FunctionEncoder(letter_weights, kind="sparse", name="m", vocabulary=128).encode_documents(["ζ"])


def test_passages_are_counted_in_tokens_where_a_tokenizer_is_given(tmp_path: Path) -> None:
    text = "bread is baked from flour. " * 20
    file = tmp_path / "tokenizer.json"
    fakes.tokenizer().save(str(file))
    for tokenizer in (fakes.tokenizer(), fakes.FastTokenizer(), file, str(file)):
        encoder = FunctionEncoder(lengths, name="m", tokenizer=tokenizer, length=16)
        counter = fakes.tokenizer()
        passages = [text[span.start : span.end] for span in encoder.chunker.split("", text)]
        counts = [len(counter.encode(passage, add_special_tokens=False).ids) for passage in passages]
        assert max(counts) in (11, 12)  # without [CLS], [SEP] and two tokens for the seams
        assert min(counts[:-1]) > 7


def test_a_passage_fits_the_model_also_if_it_has_more_tokens_alone() -> None:
    """A passage that begins within a word gets the mark of a word's beginning, as a token more."""
    marking = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -3.0), ("b", -1.0)], 0))
    marking.pre_tokenizer = pre_tokenizers.Metaspace()
    encoder = FunctionEncoder(lengths, name="m", tokenizer=marking, length=16)
    text = "b" * 100
    counts = [len(marking.encode(text[span.start : span.end]).ids) for span in encoder.chunker.split("", text)]
    assert max(counts) == 15


def test_passages_are_counted_in_words_without_a_tokenizer() -> None:
    text = "bread is baked from flour. " * 200
    default, short = FunctionEncoder(lengths, name="m"), FunctionEncoder(lengths, name="m", length=32)
    assert default.chunker.split("", text) == chunker_for(object()).split("", text)
    longest = max(len(text[span.start : span.end].split()) for span in short.chunker.split("", text))
    assert 10 <= longest <= 20


def test_tokens_are_located_after_a_prompt_that_changes_how_the_text_begins() -> None:
    spaced = Tokenizer(
        models.WordLevel({"[UNK]": 0, "find": 1, ":": 2, "Ġbread": 3, "bread": 4, "Ġis": 5, "Q": 6}, "[UNK]")
    )
    spaced.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    counter = LiveTokenizer(spaced)
    assert counter.locate([9, 1, 2, 3, 5, 9], "bread is", "find: ") == [
        Span(0, 0),
        Span(0, 0),
        Span(0, 0),
        Span(0, 5),
        Span(5, 8),
        Span(0, 0),
    ]
    assert counter.locate([9, 6, 4, 5, 9], "bread is", "find: ")[2:4] == [Span(0, 5), Span(5, 8)]
    assert counter.locate([9, 9], "bread is") == [Span(0, 0)] * 2
    assert counter.locate([], "") == []


def test_the_tokenizer_of_a_live_model_is_not_changed() -> None:
    tokenizer = fakes.tokenizer()
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=5)
    FunctionEncoder(lengths, name="m", tokenizer=tokenizer, length=16).chunker.split("", "bread " * 40)
    assert tokenizer.truncation is not None
    assert tokenizer.padding is not None


@pytest.mark.parametrize("concurrent", [False, True])
def test_calls_of_threads_wait_for_each_other_unless_concurrent(concurrent: bool) -> None:
    lock, active, counts = threading.Lock(), [0], []

    def slow(texts: list[str]) -> Any:
        with lock:
            active[0] += 1
            counts.append(active[0])
        time.sleep(0.05)
        with lock:
            active[0] -= 1
        return lengths(texts)

    encoder = FunctionEncoder(slow, name="slow", concurrent=concurrent)
    threads = [threading.Thread(target=encoder.encode_queries, args=(["a"],)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(counts) > 1 if concurrent else max(counts) == 1


def test_an_encoder_has_readers_only_where_they_are_known() -> None:
    encoder = FunctionEncoder(lengths, name="m")
    assert not isinstance(encoder, TokenReader)
    assert not isinstance(encoder, TermReader)
    named = FunctionEncoder(letter_weights, kind="sparse", name="m", tokenizer=fakes.tokenizer())
    assert isinstance(named, TermReader)
    assert named.term(2) == "[CLS]"


def test_the_repr_names_the_model_and_its_kinds() -> None:
    assert repr(FunctionEncoder(lengths, name="lengths")) == "FunctionEncoder('lengths': dense 2)"
