"""Readers: each format gives the one record, and a bad line is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.errors import ConfigError, InputError, SourceError
from plait.train.data.example import Example, Passage
from plait.train.data.example_store import build_example_store
from plait.train.data.nway import read_columns, read_flag, read_nway, read_triples, write_flag
from plait.train.data.sources import SourceConfig, read_adjacent, read_beir, read_source, read_texts, read_titles
from plait.train.data.text_store import TextStore
from train.corpora import write_beir


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_beir_split_gives_each_query_with_its_judged_documents(tmp_path: Path) -> None:
    examples = list(read_beir(write_beir(tmp_path / "set")))
    assert len(examples) == 50
    assert examples[0].query == "which loom was built of oak"
    assert examples[0].positives[0].id == "d0"
    assert examples[0].positives[0].text.startswith("the loom number 0")


def test_zero_judgements_are_negatives_and_queries_without_positives_are_skipped(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "set", splits=())
    written(folder / "qrels" / "train.tsv", "q0\td0\t1", "q0\td3\t0", "q1\td3\t0")
    (example,) = read_beir(folder)
    assert [passage.id for passage in example.negatives] == ["d3"]


def test_a_judged_document_missing_in_the_corpus_is_named(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "set", splits=())
    written(folder / "qrels" / "train.tsv", "q0\tgone\t1")
    with pytest.raises(InputError, match=r"corpus\.jsonl: there is no document 'gone' .*query 'q0'"):
        list(read_beir(folder))


def test_triples_are_texts_or_ids(tmp_path: Path) -> None:
    texts = written(tmp_path / "texts.tsv", "what\tthis\tthat\tthose")
    (example,) = read_triples(texts)
    assert example == Example("what", (Passage("this"),), (Passage("that"), Passage("those")))
    ids = written(tmp_path / "ids.tsv", "1\t7\t8")
    queries = written(tmp_path / "queries.tsv", "1\twhat")
    collection = written(tmp_path / "collection.tsv", "7\tthis", "8\tthat")
    (example,) = read_triples(ids, queries, collection)
    assert example == Example("what", (Passage("this", "7"),), (Passage("that", "8"),))


def test_a_triple_with_two_columns_is_refused_with_its_line(tmp_path: Path) -> None:
    file = written(tmp_path / "bad.tsv", "a\tb\tc", "a\tb")
    with pytest.raises(SourceError, match=r"bad\.tsv, line 2: expected query, positive and negative"):
        list(read_triples(file))


def test_an_unknown_id_is_refused_with_its_line(tmp_path: Path) -> None:
    file = written(tmp_path / "ids.tsv", "what\t7\t9")
    collection = written(tmp_path / "collection.tsv", "7\tthis")
    with pytest.raises(SourceError, match=r"ids\.tsv, line 1: there is no passage '9' among the 1"):
        list(read_triples(file, None, collection))


def test_nway_lists_keep_the_order_and_the_scores(tmp_path: Path) -> None:
    file = written(tmp_path / "lists.jsonl", json.dumps(["what", ["this", 2.5], ["that", -1]]), '["who", "him", "her"]')
    first, second = read_nway(file)
    assert first == Example("what", (Passage("this"),), (Passage("that"),), (2.5,), (-1.0,))
    assert second.positive_scores is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"query": "q"}', "expected \\[query, \\[passage, score\\]"),
        ('["q", ["p", "high"]]', "expected \\[passage, score\\]"),
        ('["q", ["p", 1], "r"]', "1 of 2 passages have a score"),
        ('["q", ["p", 1]', "this is not JSON"),
        ('["q", [null, 1]]', "expected an id or a text"),
    ],
)
def test_a_bad_nway_list_is_refused_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    file = written(tmp_path / "lists.jsonl", '["q", ["p", 1]]', "", line)
    with pytest.raises(SourceError, match=f"lists.jsonl, line 3: {message}"):
        list(read_nway(file))


def test_flag_lists_have_scores_and_prompts(tmp_path: Path) -> None:
    fields = {
        "query": "q",
        "pos": ["p"],
        "neg": ["n", "m"],
        "pos_scores": [3],
        "neg_scores": [1, 0.5],
        "prompt": "ask: ",
    }
    (example,) = read_flag(written(tmp_path / "flag.jsonl", json.dumps(fields)))
    assert example == Example("ask: q", (Passage("p"),), (Passage("n"), Passage("m")), (3.0,), (1.0, 0.5))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pos": ["p"]}, "there is no 'query'"),
        ({"query": 1, "pos": ["p"]}, "'query' must be text"),
        ({"query": "q", "pos": []}, "'pos' is empty"),
        ({"query": "q", "pos": "p"}, "'pos' must be a list of texts"),
        (
            {"query": "q", "pos": ["p"], "neg": ["n"], "pos_scores": [1]},
            "only the positives or only the negatives have scores",
        ),
        ({"query": "q", "pos": ["p"], "pos_scores": [1, 2]}, "there are 2 positive scores for 1"),
        ({"query": " ", "pos": ["p"]}, "the query is empty"),
    ],
)
def test_a_bad_flag_list_is_refused_with_its_line(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    with pytest.raises(SourceError, match=f"flag.jsonl, line 1: .*{message}"):
        list(read_flag(written(tmp_path / "flag.jsonl", json.dumps(fields))))


def test_columns_take_any_number_of_negatives(tmp_path: Path) -> None:
    fields = {"anchor": "q", "positive": "p", "negative_10": "c", "negative_2": "b", "negative": "a"}
    (example,) = read_columns(written(tmp_path / "columns.jsonl", json.dumps(fields)))
    assert [passage.text for passage in example.negatives] == ["a", "b", "c"]


def test_unlabelled_documents_give_texts_titles_and_adjacent_sentences(tmp_path: Path) -> None:
    fields = {
        "id": "1",
        "title": "Looms",
        "text": "A loom is a frame of wood. It holds many threads. They are woven here. ",
    }
    file = written(tmp_path / "docs.jsonl", json.dumps(fields))
    assert [example.query for example in read_texts(file)] == ["Looms " + fields["text"]]
    assert [example.query for example in read_titles(file)] == ["Looms"]
    (pair,) = read_adjacent(file)
    assert (pair.query, pair.positives[0].text) == ("A loom is a frame of wood.", "It holds many threads.")


def test_a_source_is_named_and_may_be_limited(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "set")
    examples = list(read_source(SourceConfig(path=str(folder), limit=3)))
    assert [example.source for example in examples] == ["set"] * 3
    with pytest.raises(ConfigError, match="kind is 'csv'; choose one of beir"):
        SourceConfig(path="x", kind="csv")


def test_written_lists_are_read_back(tmp_path: Path) -> None:
    examples = [
        Example("q", (Passage("p", "1"),), (Passage("n", "2"),), (1.0,), (0.25,)),
        Example("r", (Passage("p"),)),
    ]
    assert write_flag(tmp_path / "lists.jsonl", examples) == 2
    assert list(read_flag(tmp_path / "lists.jsonl")) == examples


def test_a_text_store_gives_texts_in_the_order_asked() -> None:
    with TextStore() as store:
        store.add((str(number), f"text {number}") for number in range(1200))
        assert store.get(["1199", "none", "0"]) == ["text 1199", None, "text 0"]
        assert len(store) == 1200


def test_the_store_returns_its_examples_and_merges_equal_passages(tmp_path: Path) -> None:
    one = Example("q", (Passage("same  text"),), (Passage("n"), Passage("same text")), (1.0,), (0.5, 0.9), "a")
    two = Example("r", (Passage("same text"), Passage("p")), source="b")
    pool = build_example_store(tmp_path / "pool.sqlite", [one, two])
    first, second = pool.get([1, 0])[::-1]
    assert first.positives[0] == second.positives[0]
    assert pool.source_names == ["a", "b"]
    assert pool.n_negatives.tolist() == [1, 0]
    # The negative that is the positive in other white space is gone, and its score with it.
    assert pool.example(first).negatives == (Passage("n"),)
    assert first.negative_scores == (0.5,)
    pool.close()


def test_an_empty_store_is_refused_and_removed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to train on"):
        build_example_store(tmp_path / "pool.sqlite", [])
    assert list(tmp_path.iterdir()) == []
