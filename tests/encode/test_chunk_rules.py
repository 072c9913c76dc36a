"""`Chunking`: where passages end, what an index keeps of it, and late chunking."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import plait
from encoders import WordEncoder
from plait.encode.chunking import BY, Chunker, Chunking, WindowChunker, WordTokenizer, chunker_for
from plait.encode.late import encode_late
from plait.ingest import split_document

TEXT = (
    "# Wool\n\nWool comes from sheep. It is warm. Sheep are shorn in spring.\n\nThe fibre is curly and holds air.\n\n"
    "## Spinning\n\nA spindle twists fibres into yarn. The wheel is faster.\n\n"
    "### Worsted\n\n### Woollen\n\nWoollen yarn is carded! Is it soft? Yes.\n\n"
    "Weaving\n=======\n\nThe loom crosses warp and weft. " + "One two three four five six seven eight nine ten. " * 6
)


class Words:
    """An encoder that has a chunker by words, as models have one by tokens."""

    chunker = WindowChunker(WordTokenizer(), size=200, overlap=25)


def split(text: str, **options: object) -> list[str]:
    chunker = chunker_for(Words(), Chunking(**options))  # type: ignore[arg-type]
    spans = chunker.split("", text)
    assert spans[0].start == 0
    assert spans[-1].end == len(text)
    assert all(before.start < after.start <= before.end < after.end for before, after in pairwise(spans))
    return [text[span.start : span.end] for span in spans]


def n_words(text: str) -> int:
    return WordTokenizer().count(text)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(("size", "overlap"), [(8, 0), (12, 4), (20, 10), (40, 8), (200, 25)])
def test_passages_cover_the_text_and_are_no_longer_than_the_size(by: str, size: int, overlap: int) -> None:
    for text in (TEXT, TEXT.replace(" ", ""), "word " * 500, "one", "", "\n\n\n", "# only a heading"):
        passages = split(text, size=size, overlap=overlap, by=by)
        assert max(map(n_words, passages)) <= size


def test_passages_by_tokens_have_exactly_the_size_and_the_overlap() -> None:
    words = [f"w{number}" for number in range(100)]
    passages = [passage.split() for passage in split(" ".join(words), size=30, overlap=10, by="tokens")]
    assert passages == [words[:30], words[20:50], words[40:70], words[60:90], words[80:]]


def test_passages_by_sentence_are_whole_sentences() -> None:
    passages = split("One two three. Four five six! Seven eight nine? Ten.", size=8, overlap=0, by="sentence")
    assert [passage.strip() for passage in passages] == ["One two three. Four five six!", "Seven eight nine? Ten."]


def test_an_overlap_by_sentence_repeats_whole_sentences() -> None:
    text = "A b c. D e f. G h i. J k l. M n o."
    passages = [passage.strip() for passage in split(text, size=12, overlap=4, by="sentence")]
    assert passages == ["A b c. D e f. G h i.", "G h i. J k l. M n o."]


def test_a_sentence_that_is_too_long_is_cut() -> None:
    passages = split("Short one. " + "word " * 30 + ".", size=10, overlap=0, by="sentence")
    assert passages[0].strip() == "Short one."
    assert all(n_words(passage) <= 10 for passage in passages)


def test_passages_by_paragraph_are_whole_paragraphs() -> None:
    text = "One two.\nThree four.\n\nFive six.\n\n\nSeven eight. Nine."
    assert [passage.strip() for passage in split(text, size=9, overlap=0, by="paragraph")] == [
        "One two.\nThree four.\n\nFive six.",
        "Seven eight. Nine.",
    ]


def test_passages_by_heading_begin_with_headings() -> None:
    passages = [passage.strip() for passage in split(TEXT, size=200, overlap=0, by="heading")]
    assert [passage.splitlines()[0] for passage in passages] == ["# Wool", "## Spinning", "### Worsted", "Weaving"]
    assert passages[2].startswith("### Worsted\n\n### Woollen\n\nWoollen yarn")


def test_a_comment_in_code_is_no_heading() -> None:
    text = "# Title\n\nText.\n\n```\n# a comment\nx = 1\n```\n\nMore text."
    assert len(split(text, size=200, by="heading")) == 1


def test_wrong_chunking_is_refused() -> None:
    wrong: list[dict[str, object]] = [{"size": 7}, {"size": 1.5}, {"overlap": -1}, {"by": "words"}, {"late": 1}]
    wrong += [{"size": 20, "overlap": 11}, {"size": True}]
    for options in wrong:
        with pytest.raises(plait.ConfigError):
            Chunking(**options)  # type: ignore[arg-type]
    with pytest.raises(plait.ConfigError, match="the model takes 200 tokens"):
        chunker_for(Words(), Chunking(size=201))


# -- kept with the index


def test_an_index_keeps_its_chunking(tmp_path: Path) -> None:
    chunking = Chunking(size=10, overlap=2, by="sentence")
    text = "One two three four five. " * 4
    with plait.open(tmp_path / "ix", create=True, encoder=WordEncoder(), chunking=chunking) as index:
        index.add([{"id": "1", "text": text}])
        assert index.info().passages == 4
        assert index.info().chunking == "10 tokens, overlap 2, by sentence"
    with plait.open(tmp_path / "ix", encoder=WordEncoder()) as index:
        index.add([{"id": "2", "text": text}])
        assert index.info().passages == 8
    plait.open(tmp_path / "ix", encoder=WordEncoder(), chunking=chunking).close()
    for other in (Chunking(size=11, overlap=2, by="sentence"), Chunking()):
        with pytest.raises(plait.ConfigError, match="splits documents by 10 tokens, overlap 2, by sentence"):
            plait.open(tmp_path / "ix", encoder=WordEncoder(), chunking=other)


def test_an_index_without_chunking_says_so(tmp_path: Path) -> None:
    with plait.open(tmp_path / "ix", create=True, encoder=WordEncoder()) as index:
        assert index.info().chunking == ""
    with pytest.raises(plait.ConfigError, match="splits documents as its model does"):
        plait.open(tmp_path / "ix", encoder=WordEncoder(), chunking=Chunking(size=50))
    with pytest.raises(plait.ConfigError, match=r"chunking must be a plait\.Chunking"):
        plait.open(tmp_path / "ix", encoder=WordEncoder(), chunking=50)  # type: ignore[arg-type]


# -- late chunking, with the bundled model


@pytest.fixture(scope="module")
def model() -> plait.Encoder:
    return plait.load_model(n_threads=1)


def passages_of(model: object, text: str, chunking: Chunking) -> tuple[plait.Document, list[plait.Span]]:
    chunker: Chunker = chunker_for(model, chunking)
    document = plait.Document("1", text, "Fibres")
    return document, split_document(chunker, document)


def test_late_vectors_are_those_of_the_tokens_in_their_context(model: plait.Encoder) -> None:
    text = "Wool comes from sheep. It is warm. It is shorn in spring. The fibre holds air, so it keeps the heat."
    document, spans = passages_of(model, text, Chunking(size=16, overlap=0, by="sentence"))
    assert len(spans) > 2
    late = encode_late(model, [document], [spans])
    whole = model.encode_documents([f"Fibres {text}"])
    alone = model.encode_documents([f"Fibres {text[slice(*span)]}" for span in spans])
    assert late.multi is not None
    assert whole.multi is not None
    assert alone.multi is not None
    assert alone.dense is not None
    np.testing.assert_array_equal(late.dense, alone.dense)
    vectors = {tuple(np.round(row, 5)) for row in whole.multi[0]}
    assert all(tuple(np.round(row, 5)) in vectors for item in range(len(spans)) for row in late.multi[item])
    assert [len(late.multi[item]) for item in range(len(spans))] == [
        len(alone.multi[item]) for item in range(len(spans))
    ]


def test_a_document_of_one_passage_is_encoded_as_always(model: plait.Encoder) -> None:
    document, spans = passages_of(model, "Wool is warm.", Chunking())
    late, alone = encode_late(model, [document], [spans]), model.encode_documents(["Fibres Wool is warm."])
    assert late.multi is not None
    assert alone.multi is not None
    np.testing.assert_array_equal(late.multi.values, alone.multi.values)


def test_late_chunking_of_an_index(tmp_path: Path) -> None:
    chunking = Chunking(size=16, overlap=0, by="sentence", late=True)
    text = "Wool comes from sheep. It is shorn in spring. Silk comes from worms. It is reeled from cocoons."
    with plait.open(tmp_path / "ix", create=True, chunking=chunking, n_threads=1) as index:
        index.add([{"id": "1", "text": text}])
        assert index.info().passages > 1
        (hit,) = index.search("how is silk made", mode="multi")
    assert "cocoons" in hit.passage or "worms" in hit.passage


def test_late_chunking_needs_vectors_of_tokens(tmp_path: Path) -> None:
    chunking = Chunking(size=10, late=True)
    with (
        plait.open(tmp_path / "ix", create=True, encoder=WordEncoder(), chunking=chunking) as index,
        pytest.raises(plait.ConfigError, match="late chunking needs a model"),
    ):
        index.add([{"id": "1", "text": "One two three."}])
