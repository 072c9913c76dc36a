"""Shortens queries that mark a mention to what a tiny cross-encoder can read: the mention and the name of its table.

    python benchmarks/mentions.py wikitables-el/queries.jsonl.gz short/queries.jsonl
    python benchmarks/mentions.py mined.jsonl short.jsonl

Takes JSON lines with `text` or `query`, such as a BEIR folder has and `plait mine` writes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path

MENTION = re.compile(r"\[START\]\s*(.*?)\s*\[END\]", re.DOTALL)


def shortened(text: str) -> str:
    """`List of towers ; Name: [START] Bell Tower [END] Height: 40` to `Bell Tower ; List of towers`."""
    found = MENTION.search(text)
    return text if found is None else f"{found[1]} ; {text.split(' ; ')[0]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("to", type=Path)
    given = parser.parse_args()
    read = gzip.open if given.source.suffix == ".gz" else open
    with read(given.source, "rt", encoding="utf-8") as lines, given.to.open("w", encoding="utf-8") as out:
        for line in lines:
            fields = json.loads(line)
            key = "query" if "query" in fields else "text"
            out.write(json.dumps({**fields, key: shortened(fields[key])}) + "\n")


if __name__ == "__main__":
    main()
