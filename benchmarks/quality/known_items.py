"""Known-item queries on the demo index: does a document come first for its own name, and near the top for a misspelt
one?

    plait demo --to demo
    python -m benchmarks.quality.known_items --index demo --seed 0

Queries are drawn from the documents of the index by a random generator with a fixed seed: ids, titles, names (a title
up to its parameters) and last parts of dotted names that no other document has. A misspelt query is a name with one
edit: a letter removed, added, replaced, or exchanged with the next, in a word of at least four letters.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plait

N_QUERIES = 100
MIN_LETTERS = 4  # of a word that is misspelt
TOP = 3  # a misspelt name must be among the first TOP
ABOUT = "about-this-index"  # the demo's document about itself


@dataclass(frozen=True)
class Item:
    """A document, as far as queries are made of it."""

    id: str
    title: str

    @property
    def name(self) -> str:
        return self.title.split("(")[0].strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True, help="the index of plait demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", nargs="+", default=["hybrid", "bm25"])
    parser.add_argument("--misses", action="store_true", help="print the queries that fail")
    options = parser.parse_args()
    with plait.open(options.index, n_threads=1, read_only=True) as index:
        items = [Item(document.id, document.title) for document in index if document.id != ABOUT]
        queries = draw(items, options.seed)
        print("| queries | " + " | ".join(f"{mode}: first | in {TOP}" for mode in options.mode) + " |")
        print("|---|" + "---|" * (2 * len(options.mode)))
        for kind, pairs in queries.items():
            cells = []
            for mode in options.mode:
                ranks = [rank(index, query, item.id, mode) for query, item in pairs]
                cells += [f"{sum(one == 1 for one in ranks)} of {len(pairs)}", str(sum(one <= TOP for one in ranks))]
                if options.misses:
                    misses = zip(pairs, ranks, strict=True)
                    print(json.dumps([(query, item.id, one) for (query, item), one in misses if one > 1]))
            print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)


def draw(items: Sequence[Item], seed: int) -> dict[str, list[tuple[str, Item]]]:
    """By kind: queries with the document that each should find."""
    rng = random.Random(seed)
    last = Counter(item.name.rpartition(".")[2].casefold() for item in items)
    unique = [item for item in items if "." in item.name and last[item.name.rpartition(".")[2].casefold()] == 1]
    makers: dict[str, tuple[Callable[[Item], str], Sequence[Item]]] = {
        "ids": (lambda item: item.id, items),
        "titles": (lambda item: item.title, items),
        "names": (lambda item: item.name, items),
        "last parts": (lambda item: item.name.rpartition(".")[2], unique),
        "misspelt names": (lambda item: misspelt(item.name, rng), [item for item in items if words(item.name)]),
    }
    return {
        kind: [(make(item), item) for item in rng.sample(list(of), N_QUERIES)] for kind, (make, of) in makers.items()
    }


def words(name: str) -> list[re.Match[str]]:
    """The words of a name that may be misspelt."""
    return list(re.finditer(rf"[A-Za-z]{{{MIN_LETTERS},}}", name))


def misspelt(name: str, rng: random.Random) -> str:
    """A name with one edit."""
    word = rng.choice(words(name))
    while True:
        at, letter = rng.randrange(word.start(), word.end()), rng.choice(string.ascii_lowercase)
        edited = {
            "remove": name[:at] + name[at + 1 :],
            "add": name[:at] + letter + name[at:],
            "replace": name[:at] + letter + name[at + 1 :],
            "exchange": name[:at] + name[at : at + 2][::-1] + name[at + 2 :] if at + 1 < word.end() else name,
        }[rng.choice(["remove", "add", "replace", "exchange"])]
        if edited.casefold() != name.casefold():
            return edited


def rank(index: plait.Index, query: str, wanted: str, mode: str) -> int:
    """The rank of a document, from 1; a large number if it is not among the first ten."""
    ranked = [hit.id for hit in index.search(query, 10, mode=mode)]
    return ranked.index(wanted) + 1 if wanted in ranked else 1000


if __name__ == "__main__":
    main()
