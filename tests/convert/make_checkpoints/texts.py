"""Makes `checkpoints/texts.json`: 100 documents and 30 queries that every checkpoint is compared on.

    PYTHONPATH=tests python -m convert.make_checkpoints.texts FOLDER

FOLDER has the data sets scifact, boolq, squad-sent, xquad/LANGUAGE and jaquad in the BEIR layout, gzipped. Half of the
documents answer one of the queries, some are longer than every tiny model accepts, some are in other scripts, and six
are edge cases that no data set has.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

TEXTS = Path(__file__).parents[1] / "checkpoints" / "texts.json"
EDGE_DOCUMENTS = [
    "",
    "?!... (;:) -- \"'",
    "☃ ꙮ 𓀀 ⠿",
    "A",
    "word  with \t odd\n\nspaces  ",
    "don't e-mail [MASK] </s> [CLS]",
]
EDGE_QUERIES = ["", "???", "ꙮ𓀀", "[SEP] x"]
SCRIPTS = ("zh", "ar", "hi", "ru", "th", "el", "vi")


def rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def pairs(folder: Path, split: str, n: int, longest: int) -> list[tuple[str, str]]:
    """The first `n` (query, relevant document) of a split whose document has at most `longest` characters."""
    documents = {row["_id"]: f"{row['title']} {row['text']}".strip() for row in rows(folder / "corpus.jsonl.gz")}
    queries = {row["_id"]: row["text"] for row in rows(folder / "queries.jsonl.gz")}
    with (folder / "qrels" / f"{split}.tsv").open(encoding="utf-8") as lines:
        judged = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    chosen: dict[str, tuple[str, str]] = {}
    for query, document, score in judged:
        if int(score) > 0 and len(documents[document]) <= longest:
            chosen.setdefault(document, (queries[query], documents[document]))
    return list(islice(chosen.values(), n))


def main(data: Path) -> None:
    english = pairs(data / "scifact", "test", 28, 1200)
    english += pairs(data / "boolq", "test", 28, 420)
    english += pairs(data / "squad-sent", "test", 22, 200)
    others = [pair for script in SCRIPTS for pair in pairs(data / "xquad" / script, "test", 2, 500)]
    others += pairs(data / "jaquad", "test", 2, 300)
    queries = [query for query, _ in english[:8] + english[28:36] + english[56:59] + others[::3]]
    queries.append(english[1][1])  # a whole abstract, longer than every tiny model accepts
    documents = [document for _, document in english + others] + EDGE_DOCUMENTS
    texts = {"queries": queries + EDGE_QUERIES, "documents": documents}
    assert [len(part) for part in texts.values()] == [30, 100], [len(part) for part in texts.values()]
    TEXTS.write_text(json.dumps(texts, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
