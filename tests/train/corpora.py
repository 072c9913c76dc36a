"""Small data for tests of training: documents about few things, and questions whose words are in one of them."""

from __future__ import annotations

import json
from pathlib import Path

THINGS = ["loom", "river", "engine", "violin", "orchard", "harbour", "glacier", "printer", "falcon", "bakery"]
FACTS = ["was built of oak", "is cold in winter", "makes a low sound", "needs two people", "stands near the road"]


def documents() -> dict[str, str]:
    return {
        f"d{number}": f"the {thing} number {number} {fact} and everybody in town knows it"
        for number, (thing, fact) in enumerate((thing, fact) for thing in THINGS for fact in FACTS)
    }


def queries() -> dict[str, tuple[str, str]]:
    """Query id -> (text, the id of the document that answers)."""
    result = {}
    for number, (id, text) in enumerate(documents().items()):
        words = text.split()
        result[f"q{number}"] = (f"which {words[1]} {' '.join(words[4:8])}", id)
    return result


def write_beir(folder: Path, *, splits: tuple[str, ...] = ("train", "dev")) -> Path:
    """A BEIR folder; every split has every query."""
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": id, "title": "", "text": text}) for id, text in documents().items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps({"_id": id, "text": text}) for id, (text, _) in queries().items()]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    for split in splits:
        rows = ["query-id\tcorpus-id\tscore", *(f"{id}\t{answer}\t1" for id, (_, answer) in queries().items())]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    return folder
