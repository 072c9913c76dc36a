"""Draws the pairs that the default encoder's sparse head is trained on: small BEIR folders, one for each source.

    python tools/encoder_pairs.py --data DIR --to data/encoder
    for set in boolq medquad acl-abstracts squad-sent; do
        plait mine data/encoder/$set --last-rank 50 --to data/encoder/$set.jsonl
    done
    plait train recipes/encoder.toml

DIR holds the sources in the BEIR layout. Only pairs of their train splits are drawn, and of those none whose document
is judged in dev or test, none of the ACL Anthology before 2016 (not free for every use), and none whose document has
more than 256 tokens, so that training is quick. A seed that is fixed draws the same pairs each time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from pathlib import Path

from plait.encode.load import find, open_tokenizer
from plait.encode.passages import with_title
from plait.evaluate import load_beir
from plait.records import Document
from plait.sources import documents_from

N_PAIRS = {"boolq": 600, "medquad": 350, "acl-abstracts": 450, "squad-sent": 900}
N_TOKENS = 256
SEED = 3
FIRST_FREE_YEAR = 2016


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    for name, n_pairs in N_PAIRS.items():
        n_kept, n_documents = write_pairs(arguments.data / name, arguments.to / name, n_pairs)
        print(f"{name}: {n_kept} questions, {n_documents} documents")


def write_pairs(source: Path, to: Path, n_pairs: int) -> tuple[int, int]:
    """A BEIR folder of drawn questions, each with one document; how many of both."""
    train = load_beir(source, "train")
    held = {id for split in ("dev", "test") for own in load_beir(source, split).qrels.values() for id in own}
    corpus = {document.id: document for document in documents_from([source / "corpus.jsonl.gz"])}
    free = {query: _free(own, held, source.name) for query, own in train.qrels.items()}
    drawn = random.Random(SEED).sample(sorted(query for query, own in free.items() if own), n_pairs)
    tokenizer = open_tokenizer(find() / "tokenizer.json")
    pairs = [(query, corpus[free[query][0]]) for query in drawn]
    kept = [(query, own) for query, own in pairs if len(tokenizer.encode(_text(own)).ids) <= N_TOKENS]
    documents = {own.id: own for _, own in kept}
    (to / "qrels").mkdir(parents=True, exist_ok=True)
    rows = [{"_id": own.id, "title": own.title, "text": own.text} for own in documents.values()]
    _write(to / "corpus.jsonl.gz", rows)
    _write(to / "queries.jsonl.gz", [{"_id": query, "text": train.queries[query]} for query, _ in kept])
    lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{own.id}\t1" for query, own in kept)]
    (to / "qrels" / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(kept), len(documents)


def _free(judged: dict[str, int], held: set[str], source: str) -> list[str]:
    """Documents that answer and may be trained on."""
    found = [id for id, grade in judged.items() if grade > 0 and id not in held]
    if source == "acl-abstracts":
        found = [id for id in found if id[:4].isdigit() and int(id[:4]) >= FIRST_FREE_YEAR]
    return found


def _text(document: Document) -> str:
    return with_title(document.title, document.text)


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    main()
