"""A ColBERT model of PyLate: markers, query expansion and skipped punctuation are the library's."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import fakes
from plait.adapters import PyLateEncoder
from plait.encode.protocol import TokenReader
from plait.errors import ConfigError
from plait.records import Span

TEXT = "Bread is baked from flour, water"


def test_queries_and_documents_are_encoded_as_such() -> None:
    model = fakes.ColBERT()
    encoder = PyLateEncoder(model)
    assert encoder.spec.sizes() == {"multi": fakes.DIM}
    queries, documents = encoder.encode_queries([TEXT]).multi, encoder.encode_documents([TEXT]).multi
    assert queries is not None
    assert documents is not None
    np.testing.assert_array_equal(queries[0], model.encode([TEXT], is_query=True)[0])
    np.testing.assert_array_equal(documents[0], model.encode([TEXT], is_query=False)[0])
    assert len(queries[0]) == model.query_length


def test_every_row_has_its_token() -> None:
    encoder = PyLateEncoder(fakes.ColBERT())
    assert isinstance(encoder, TokenReader)
    assert encoder.tokens("blood", is_query=True) == [
        ("[CLS]", Span(0, 0)),
        ("[Q]", Span(0, 0)),
        ("blood", Span(0, 5)),
        ("[SEP]", Span(0, 0)),
        *[("[MASK]", Span(0, 0))] * 6,
    ]
    tokens = [token for token, _ in encoder.tokens(TEXT, is_query=False)]
    assert tokens == ["[CLS]", "[D]", "Bread", "is", "baked", "from", "flour", "water", "[SEP]"]


def test_a_version_that_does_not_return_token_ids_has_no_tokens() -> None:
    class Older(fakes.ColBERT):
        def encode(self, sentences: list[str], **options: object) -> object:  # type: ignore[override]
            if "output_value" in options:
                raise TypeError("unexpected keyword argument 'output_value'")
            return super().encode(sentences, **options)  # type: ignore[arg-type]

    assert not isinstance(PyLateEncoder(Older()), TokenReader)


def test_the_length_that_the_last_call_left_behind_is_no_part_of_the_fingerprint() -> None:
    model = fakes.ColBERT()
    before = PyLateEncoder(model).fingerprint
    model.encode([TEXT], is_query=False)
    assert PyLateEncoder(model).fingerprint == before
    model.encode([TEXT], is_query=True)
    assert PyLateEncoder(model).fingerprint == before


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("query_prefix", "[Query] "),
        ("default_prompt_name", "named"),
        ("document_length", 15),
        ("query_length", 11),
        ("skiplist_words", []),
        ("do_query_expansion", False),
        ("attend_to_expansion_tokens", True),
    ],
)
def test_the_settings_of_the_model_change_the_fingerprint(setting: str, value: object) -> None:
    changed = fakes.ColBERT()
    changed.prompts["named"] = "find : "  # not used without default_prompt_name
    assert PyLateEncoder(changed).fingerprint == PyLateEncoder(fakes.ColBERT()).fingerprint
    setattr(changed, setting, value)
    assert PyLateEncoder(changed).fingerprint != PyLateEncoder(fakes.ColBERT()).fingerprint
    assert PyLateEncoder(fakes.ColBERT(seed=1)).fingerprint != PyLateEncoder(fakes.ColBERT()).fingerprint


def test_passages_leave_room_for_the_marker() -> None:
    text = "bread " * 60
    encoder = PyLateEncoder(fakes.ColBERT())
    passages = [text[span.start : span.end] for span in encoder.chunker.split("", text)]
    assert (
        max(len(passage.split()) for passage in passages) == 11
    )  # of 16: without [CLS], [D], [SEP] and two for the seams
    multi = encoder.encode_documents(passages).multi
    assert multi is not None
    assert len(multi[0]) == 14
    assert encoder.encode_documents(passages).truncated == 0
    assert encoder.encode_documents(["bread " * 14]).truncated == 1


def test_another_object_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"pylate\.models\.ColBERT"):
        PyLateEncoder(fakes.dense_model())
