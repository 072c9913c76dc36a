"""Draws the training data of the default encoder and lets a committee of teachers score it: for each query a list of
passages with scores, in the format that `plait train` reads.

    python models/scripts/training_lists.py --data DIR --to data/encoder --teacher arctic

DIR holds the sources in the BEIR layout. Queries are those of train splits, or sentences of passages. A sentence stays
in its passage and asks for the most similar passages, or it is removed and asks for the rest of its passage, as a claim
asks for its article. `--teacher` is a folder with `onnx/model.onnx` and `tokenizer.json` of a model whose first state
is the vector of a text (snowflake-arctic-embed-s). The committee is that model, the dense and multi vectors of
plait-gte-small, and BM25. Where labels are more reliable than the committee (scifact), no passage scores above the
labelled answer.

Passages are cut to a number of words. No passage is drawn that is judged in a dev or test split, except for scifact,
whose train split is used whole and shares passages with the test split. None is of the ACL Anthology before 2016 (not
free for every use). A fixed seed draws the same data each time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

import plait
from plait.encode.chunking import with_title
from plait.evaluate import load_beir
from plait.records import Hit

MODEL = "plait-gte-small"
SEED = 3
FIRST_FREE_YEAR = 2016
N_FOUND = 50  # passages that the committee scores
N_BEST, N_OTHERS = 8, 7  # passages of a list: the best, and a sample of the rest
LEAD = 0.3  # margin of a reliable answer over the best other passage, in standard deviations
WEIGHTS = {"teacher": 1.0, "dense": 0.7, "multi": 0.7, "bm25": 0.5}
PROMPT = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True, slots=True)
class Source:
    """A collection, the number of queries drawn from it, and the number of passages they are searched in."""

    name: str  # name of the lists
    n_queries: int
    n_passages: int
    queries: str = "train"  # "train" split, "sentences" of passages, or sentences "left out" of them
    folder: str = ""  # folder of the collection; the name if empty
    n_words: int = 120  # per passage
    n_sentences: int = 1  # minimum for a passage that gives a sentence
    shares: bool = False  # whether to draw passages that are judged in a dev or test split
    is_sure: bool = False  # whether a label outranks the committee


SOURCES = (
    Source("squad-sent", 6000, 6500),
    Source("boolq", 3500, 4000),
    Source("medquad", 3500, 4500),
    Source("acl-abstracts", 3500, 4500),
    Source("acl-sentences", 2400, 3000, queries="left out", folder="acl-abstracts", n_words=160, n_sentences=3),
    Source("scifact", 809, 5183, n_words=250, shares=True, is_sure=True),
    Source("wikipassages", 4000, 5000, queries="sentences"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", help="names of sources; all by default")
    parser.add_argument("--share", type=float, default=1.0, help="share of the queries and passages; less for a trial")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    teacher = Teacher(options.teacher, options.threads)
    for source in SOURCES:
        to = options.to / f"{source.name}.jsonl"
        if to.exists() or (options.sets and source.name not in options.sets):
            continue
        queries, passages = drawn(options.data / (source.folder or source.name), source, options.share)
        lists = list(judged(queries, passages, teacher, options.threads, is_sure=source.is_sure))
        part = to.with_suffix(".part")
        part.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lists), encoding="utf-8")
        part.rename(to)
        print(f"{source.name}: {len(lists)} of {len(queries)} queries, {len(passages)} passages", flush=True)


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    answer: str  # the id of a passage that answers it, or that contained it
    others: frozenset[str] = frozenset()  # other passages that answer it; never negatives


def drawn(folder: Path, source: Source, share: float) -> tuple[list[Query], dict[str, str]]:
    """The queries, and by id the passages that they are searched in."""
    rng = random.Random(f"{SEED} {source.name}")
    n_queries, n_passages = int(share * source.n_queries), int(share * source.n_passages)
    held = set() if source.shares else held_out(folder)
    free = {id: text for id, text in corpus(folder) if id not in held and is_free(id, folder.name) and text}
    texts = {id: cut(text, source.n_words) for id, text in free.items()}
    queries: list[Query] = []
    if source.queries == "train":
        train = load_beir(folder, "train")
        for id in rng.sample(sorted(train.qrels), len(train.qrels)):
            answers = [passage for passage, grade in train.qrels[id].items() if grade > 0 and passage in texts]
            if answers and len(queries) < n_queries:
                queries.append(Query(train.queries[id], answers[0], frozenset(answers[1:])))
    passage_ids = list(dict.fromkeys(query.answer for query in queries))
    others = [id for id in rng.sample(sorted(texts), len(texts)) if id not in set(passage_ids)]
    passage_ids += others[: max(n_passages - len(passage_ids), 0)]
    if source.queries != "train":
        for id in rng.sample(passage_ids, min(n_queries, len(passage_ids))):
            sentences = texts[id].split(". ")
            fit = [sentence for sentence in sentences if 6 <= len(sentence.split()) <= 40]
            queries += [Query(rng.choice(fit), id)] if fit and len(sentences) >= source.n_sentences else []
    if source.queries == "left out":
        for query in queries:
            texts[query.answer] = texts[query.answer].replace(query.text, "", 1).replace(" . ", " ")
    return queries, {id: texts[id] for id in passage_ids}


def held_out(folder: Path) -> set[str]:
    """Passages that are judged in a dev or test split."""
    splits = [split for split in ("dev", "test") if (folder / "qrels" / f"{split}.tsv").exists()]
    return {id for split in splits for grades in load_beir(folder, split).qrels.values() for id in grades}


def corpus(folder: Path) -> Iterator[tuple[str, str]]:
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield row["_id"], with_title(row.get("title") or "", row["text"]).strip()


def cut(text: str, n_words: int) -> str:
    words = text.split()
    return text if len(words) <= n_words else " ".join(words[:n_words])


def is_free(id: str, source: str) -> bool:
    return source != "acl-abstracts" or (id[:4].isdigit() and int(id[:4]) >= FIRST_FREE_YEAR)


def judged(
    queries: Sequence[Query], passages: dict[str, str], teacher: Teacher, n_threads: int, *, is_sure: bool
) -> Iterator[dict[str, object]]:
    """A list for each query whose answer is retrieved. A sentence's own passage is left out."""
    rng, texts = random.Random(SEED), list(passages.values())
    numbers = {id: number for number, id in enumerate(passages)}
    vectors = teacher.vectors(texts)
    query_vectors = teacher.vectors([PROMPT + query.text for query in queries])
    with (
        tempfile.TemporaryDirectory() as folder,
        plait.open(folder, create=True, model=MODEL, n_threads=n_threads) as index,
    ):
        index.add([{"id": id, "text": text} for id, text in passages.items()])
        for query, vector in zip(queries, query_vectors, strict=True):
            hits = index.search(query.text, k=N_FOUND)
            is_sentence = query.text in passages[query.answer]
            left_out = query.others | ({query.answer} if is_sentence else set())
            hits = [hit for hit in hits if hit.id not in left_out]
            scores = committee(hits, vectors[[numbers[hit.id] for hit in hits]] @ vector)
            order = np.argsort(-scores, kind="stable")
            answer = hits[order[0]].id if is_sentence else query.answer
            places = {hit.id: position for position, hit in enumerate(hits)}
            if answer not in places:
                continue
            rest = [int(position) for position in order if hits[position].id != answer]
            if is_sure:
                scores[places[answer]] = max(scores[places[answer]], scores[rest[0]] + LEAD)
            chosen = rest[:N_BEST] + rng.sample(rest[N_BEST:], min(N_OTHERS, max(len(rest) - N_BEST, 0)))
            yield {
                "query": query.text,
                "pos": [passages[answer]],
                "pos_id": [answer],
                "neg": [hits[position].text for position in chosen],
                "neg_id": [hits[position].id for position in chosen],
                "pos_scores": [round(float(scores[places[answer]]), 4)],
                "neg_scores": [round(float(scores[position]), 4) for position in chosen],
            }


def committee(hits: Sequence[Hit], teacher: NDArray[np.float32]) -> NDArray[np.float64]:
    """The weighted sum of the members' scores, each standardised over the retrieved passages."""
    columns = {"teacher": np.asarray(teacher, np.float64)}
    for name in ("dense", "multi", "bm25"):
        columns[name] = np.array([hit.scores.get(name, 0.0) for hit in hits])
    return np.asarray(
        sum(WEIGHTS[name] * (column - column.mean()) / max(column.std(), 1e-6) for name, column in columns.items())
    ) / sum(WEIGHTS.values())


class Teacher:
    """A dense model whose vector is its first state."""

    def __init__(self, folder: Path, n_threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = n_threads
        self._session = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"), options)
        self._names = {one.name for one in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(256)

    def vectors(self, texts: Sequence[str], *, batch: int = 16) -> NDArray[np.float32]:
        """(texts, dims) unit vectors; texts of similar length share a batch."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
        parts: list[NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(ids)
        for start in range(0, len(ids), batch):
            batch_numbers = order[start : start + batch]
            longest = max(len(ids[number]) for number in batch_numbers)
            tokens = np.zeros((len(batch_numbers), longest), np.int64)
            for row, number in enumerate(batch_numbers):
                tokens[row, : len(ids[number])] = ids[number]
            attended = np.array(
                [[position < len(ids[number]) for position in range(longest)] for number in batch_numbers], np.int64
            )
            inputs = {"input_ids": tokens, "attention_mask": attended, "token_type_ids": np.zeros_like(tokens)}
            states = self._session.run(None, {name: inputs[name] for name in self._names})[0]
            for row, number in enumerate(batch_numbers):
                parts[number] = states[row, 0] / np.linalg.norm(states[row, 0])
        return np.stack(parts)


if __name__ == "__main__":
    main()
