"""A small judged data set in the layout of BEIR, written by the tests."""

from __future__ import annotations

import json
import random
from pathlib import Path

TOPICS = {
    "cloth": "loom warp weft shuttle thread yarn spindle fabric textile linen",
    "body": "heart blood vein lung breath muscle bone nerve kidney liver",
    "sea": "wave tide ship sail anchor harbour current reef salt storm",
    "code": "loop variable function class module import compiler pointer array string",
}


def write_beir(folder: Path, *, n_documents: int = 60, n_queries: int = 16, seed: int = 0) -> Path:
    """A corpus about four topics, with titles and one blank document; queries with judgements from 0 to 2."""
    random_words = random.Random(seed)
    names = list(TOPICS)
    topic_of, lines = {}, []
    for number in range(n_documents):
        topic = names[number % len(names)]
        topic_of[f"d{number}"] = topic
        text = " ".join(random_words.choices(TOPICS[topic].split(), k=9) + random_words.choices(ALL, k=3))
        lines.append({"_id": f"d{number}", "title": topic if number % 3 else "", "text": text})
    lines.append({"_id": "blank", "title": "", "text": " "})
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / "corpus.jsonl", lines)
    queries, judgements = [], ["query-id\tcorpus-id\tscore"]
    for number in range(n_queries):
        topic = names[number % len(names)]
        queries.append({"_id": f"q{number}", "text": " ".join(random_words.choices(TOPICS[topic].split(), k=3))})
        for document in random_words.sample(sorted(topic_of), 12):
            relevance = random_words.choice([1, 2]) if topic_of[document] == topic else 0
            judgements.append(f"q{number}\t{document}\t{relevance}")
    write_lines(folder / "queries.jsonl", queries)
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / "test.tsv").write_text("\n".join(judgements) + "\n", encoding="utf-8")
    return folder


ALL = [word for words in TOPICS.values() for word in words.split()]


def write_lines(file: Path, rows: list[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
