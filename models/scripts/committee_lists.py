"""Draws the training data of the default encoder and lets a committee of retrievers score it: for each query a list of
passages with scores, in the format that `plait train` reads.

    python models/scripts/committee_lists.py --data DIR --to data/committee --models bge-states gte-states arctic
    python models/scripts/committee_lists.py --data DIR --to data/committee --labels models/scripts/committee_labels.npz

DIR holds the collections in the BEIR layout. `--models` are model folders; the last one must have dense vectors only.
See committee.py. `--labels` has what an earlier run retrieved, and nothing is encoded; `--save-labels` writes it, for
all sets of `--to`. Queries are of many kinds, so that the model is not fitted to one: questions and titles of train
splits, titles of passages, sentences that stay in their passage or are left out of it, keywords, and half passages that
ask for the other half.

No collection is drawn on that the default encoder is judged on, and no passage that is judged in a dev or test split.
None is of the ACL Anthology before 2016 (not free for every use). A fixed seed draws the same data each time.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from committee import candidates_of
from plait.evaluate import load_beir

SEED = 5
FIRST_FREE_YEAR = 2016
N_BEST, N_OTHERS = 8, 7  # passages of a list: the best, and a sample of the rest
KINDS = ("questions", "titles", "sentences", "left-out", "keywords", "halves")


@dataclass(frozen=True, slots=True)
class Source:
    """A collection: how many passages are drawn, and how many queries of each kind."""

    name: str
    n_passages: int
    n_queries: Mapping[str, int]
    n_words: int = 110  # per passage


SOURCES = (
    Source("squad-sent", 6000, {"questions": 5000}),
    Source("boolq", 3600, {"questions": 3000}),
    Source("wikipassages", 7000, {"sentences": 1800, "left-out": 900, "keywords": 1500, "titles": 500, "halves": 900}),
    Source("acl-abstracts", 5000, {"questions": 2000, "left-out": 1200, "keywords": 800, "halves": 800}, n_words=130),
)


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    answer: str = ""  # the id of a passage that answers it; empty: the committee's first
    without: frozenset[str] = frozenset()  # passages that must not be in its list


@dataclass(slots=True)
class Passage:
    title: str
    text: str

    @property
    def whole(self) -> str:
        return f"{self.title}. {self.text}" if self.title else self.text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    committee = parser.add_mutually_exclusive_group(required=True)
    committee.add_argument("--models", type=Path, nargs="+", help="the encoders of the committee")
    committee.add_argument("--labels", type=Path, help="what the committee retrieved in an earlier run")
    parser.add_argument("--save-labels", type=Path, help="where to write what the committee retrieved")
    parser.add_argument("--sets", nargs="+", choices=[source.name for source in SOURCES], help="all by default")
    parser.add_argument("--share", type=float, default=1.0, help="share of the queries and passages; less for a trial")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for source in SOURCES:
        to = options.to / f"{source.name}.jsonl"
        if to.exists() or (options.sets and source.name not in options.sets):
            continue
        queries, passages = drawn(options.data / source.name, source, options.share)
        if options.labels:
            lists = list(labelled(source.name, queries, passages, options.labels))
        else:
            lists = list(scored(queries, passages, options.models, options.threads))
        part = to.with_suffix(".part")
        part.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lists), encoding="utf-8")
        part.rename(to)
        print(f"{source.name}: {len(lists)} of {len(queries)} queries, {len(passages)} passages", flush=True)
    if options.save_labels:
        save_labels(options.data, options.to, options.save_labels, options.share)


def drawn(folder: Path, source: Source, share: float) -> tuple[list[Query], dict[str, str]]:
    """The queries, and by id the passages that they are searched in. A passage gives one query at most."""
    rng = random.Random(f"{SEED} {source.name}")
    n_passages = int(share * source.n_passages)
    reserved = held_out(folder)
    free = {
        id: passage for id, passage in corpus(folder, source.n_words) if id not in reserved and is_free(id, folder.name)
    }
    queries = questions(folder, free, int(share * source.n_queries.get("questions", 0)), rng)
    asked = list(dict.fromkeys(query.answer for query in queries))[:n_passages]
    answers = set(asked)
    queries = [query for query in queries if query.answer in answers]
    others = [id for id in rng.sample(sorted(free), len(free)) if id not in answers]
    passages = {id: free[id] for id in [*asked, *others[: n_passages - len(asked)]]}
    frequencies = Counter(word for passage in passages.values() for word in set(words(passage.text)))
    givers = iter(rng.sample(list(passages), len(passages)))
    for kind in KINDS[1:]:
        wanted = int(share * source.n_queries.get(kind, 0))
        while wanted and (id := next(givers, None)) is not None:
            text = made(kind, passages[id], frequencies, len(passages), rng)
            if text is None:
                continue
            is_answer = kind in ("titles", "left-out", "halves")
            queries.append(
                Query(text, id) if is_answer else Query(text, without=frozenset([id] * (kind == "sentences")))
            )
            wanted -= 1
    return queries, {id: passage.whole for id, passage in passages.items()}


def questions(folder: Path, free: Mapping[str, Passage], n: int, rng: random.Random) -> list[Query]:
    """Queries of the train split whose answer may be used."""
    if not n:
        return []
    train = load_beir(folder, "train")
    drawn: list[Query] = []
    for id in rng.sample(sorted(train.qrels), len(train.qrels)):
        answers = [passage for passage, grade in train.qrels[id].items() if grade > 0 and passage in free]
        if answers and len(drawn) < n:
            drawn.append(Query(train.queries[id], answers[0], frozenset(answers[1:])))
    return drawn


def made(kind: str, passage: Passage, frequencies: Counter[str], n: int, rng: random.Random) -> str | None:
    """A query made from a passage; None if it does not fit. What is left out, the passage loses."""
    if kind == "titles":
        title = passage.title
        if len(title.split()) < 2:
            return None
        passage.title = ""
        return title
    if kind == "keywords":
        best = sorted(set(words(passage.text)), key=lambda word: (-math.log(n / frequencies[word]), word))[:12]
        best = [word for word in best if frequencies[word] > 1]
        return " ".join(rng.sample(best, rng.randint(2, 5))) if len(best) >= 5 else None
    sentences = passage.text.split(". ")
    if kind == "halves":
        half = len(sentences) // 2
        if half < 2:
            return None
        passage.text = ". ".join(sentences[half:])
        passage.title = ""
        return ". ".join(sentences[:half])
    fit = [sentence for sentence in sentences if 6 <= len(sentence.split()) <= 40]
    if not fit or (kind == "left-out" and len(sentences) < 3):
        return None
    sentence = rng.choice(fit)
    if kind == "left-out":
        sentences.remove(sentence)
        passage.text = ". ".join(sentences)
    return sentence


def words(text: str) -> list[str]:
    """Words of letters alone, without the short ones."""
    bare = (raw.strip(".,;:()[]'\"?!").lower() for raw in text.split())
    return [word for word in bare if len(word) > 3 and word.isalpha()]


def held_out(folder: Path) -> set[str]:
    """Passages that are judged in a dev or test split."""
    splits = [split for split in ("dev", "test") if (folder / "qrels" / f"{split}.tsv").exists()]
    return {id for split in splits for grades in load_beir(folder, split).qrels.values() for id in grades}


def corpus(folder: Path, n_words: int) -> Iterator[tuple[str, Passage]]:
    """The passages that have text, each cut to a number of words."""
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            text = " ".join(row["text"].split()[:n_words])
            if text:
                yield row["_id"], Passage((row.get("title") or "").strip(), text)


def is_free(id: str, source: str) -> bool:
    return source != "acl-abstracts" or (id[:4].isdigit() and int(id[:4]) >= FIRST_FREE_YEAR)


def scored(
    queries: list[Query], passages: dict[str, str], models: list[Path], n_threads: int
) -> Iterator[dict[str, object]]:
    """A list for each query whose answer is a candidate of the committee."""
    rng, ids, texts = random.Random(SEED), list(passages), list(passages.values())
    retrieved = candidates_of([query.text for query in queries], texts, models, n_threads=n_threads)
    for query, candidates in zip(queries, retrieved, strict=True):
        scores = {ids[number]: score for number, score in zip(candidates.numbers, candidates.scores, strict=True)}
        order = [id for id in scores if id not in query.without]
        answer = query.answer or order[0]
        if answer not in scores:
            continue
        rest = [id for id in order if id != answer]
        chosen = rest[:N_BEST] + rng.sample(rest[N_BEST:], min(N_OTHERS, max(len(rest) - N_BEST, 0)))
        values = [round(float(scores[id]), 4) for id in (answer, *chosen)]
        yield list_of(query.text, answer, chosen, values, passages)


def save_labels(data: Path, lists: Path, to: Path, share: float) -> None:
    """Writes the lists of all sets without their texts: for each list the number of its query, the numbers of its
    passages, the answer first, and their scores. Texts are drawn again when the labels are read."""
    arrays: dict[str, NDArray[Any]] = {}
    for source in SOURCES:
        if not (file := lists / f"{source.name}.jsonl").exists():
            continue
        queries, passages = drawn(data / source.name, source, share)
        numbers = {id: number for number, id in enumerate(passages)}
        remaining = enumerate(queries)
        query_numbers, items, scores, lengths = [], [], [], []
        for line in file.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            query_numbers.append(next(number for number, query in remaining if query.text == one["query"]))
            ids, values = one["pos_id"] + one["neg_id"], one["pos_scores"] + one["neg_scores"]
            items += [numbers[id] for id in ids]
            scores += values
            lengths.append(len(ids))
        arrays |= {
            f"{source.name}/digest": np.array(digest_of(queries, passages)),
            f"{source.name}/queries": np.array(query_numbers, np.uint32),
            f"{source.name}/passages": np.array(items, np.uint16),
            f"{source.name}/scores": np.array(scores, np.float16),
            f"{source.name}/lengths": np.array(lengths, np.uint8),
        }
    np.savez_compressed(to, allow_pickle=False, **arrays)


def labelled(name: str, queries: list[Query], passages: dict[str, str], labels: Path) -> Iterator[dict[str, object]]:
    """The lists that `save_labels` wrote."""
    with np.load(labels) as arrays:
        if f"{name}/digest" not in arrays:
            raise SystemExit(f"{labels} has no labels of {name}; name other sets with --sets, or give --models")
        if str(arrays[f"{name}/digest"]) != digest_of(queries, passages):
            raise SystemExit(
                f"{labels} labels other texts of {name} than {name} in --data; give --models to label these"
            )
        numbers, items, scores, lengths = (
            arrays[f"{name}/{part}"] for part in ("queries", "passages", "scores", "lengths")
        )
    ids, start = list(passages), 0
    for number, length in zip(numbers.tolist(), lengths.tolist(), strict=True):
        chosen = [ids[item] for item in items[start : start + length].tolist()]
        values = [round(float(score), 4) for score in scores[start : start + length]]
        start += length
        yield list_of(queries[number].text, chosen[0], chosen[1:], values, passages)


def list_of(
    query: str, answer: str, others: list[str], scores: list[float], passages: dict[str, str]
) -> dict[str, object]:
    """A line of the file; `scores` begin with that of the answer."""
    return {
        "query": query,
        "pos": [passages[answer]],
        "pos_id": [answer],
        "neg": [passages[id] for id in others],
        "neg_id": others,
        "pos_scores": scores[:1],
        "neg_scores": scores[1:],
    }


def digest_of(queries: list[Query], passages: dict[str, str]) -> str:
    """Of the texts in their order: labels are numbers of texts, and must not be read with others."""
    texts = json.dumps([[query.text for query in queries], list(passages.items())], ensure_ascii=False)
    return hashlib.sha256(texts.encode()).hexdigest()


if __name__ == "__main__":
    main()
