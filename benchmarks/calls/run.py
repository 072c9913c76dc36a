"""Ten tasks with each library: checks the answers, counts the lines of code and prints a table.

    pip install chromadb lancedb qdrant-client txtai
    python -m benchmarks.calls.run
    python -m benchmarks.calls.run --only plait lancedb

Libraries that are not installed are named and left out. Nothing is downloaded: every library gets the dense vectors of
plait's default model. `*` marks a task for which the library has no call of its own; the reason is below the table. A
wrong answer is an error, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.calls.count_lines import count_lines
from benchmarks.calls.model import encoder
from benchmarks.calls.records import FILES, RECORDS, write_files

TASKS = {
    "create": "create an index on disk, add records with metadata",
    "add_folder": "add a folder of text files",
    "search": "hybrid search with a filter",
    "page": "the next page of a hybrid search",
    "get": "get documents by id",
    "count": "count documents with a filter",
    "facets": "values of a field with their counts",
    "similar": "documents similar to one of the index",
    "update": "change metadata without encoding again",
    "delete": "delete by a filter",
}
LIBRARIES = {
    "plait": "with_plait",
    "Chroma": "with_chroma",
    "LanceDB": "with_lancedb",
    "Qdrant": "with_qdrant",
    "txtai": "with_txtai",
}


@dataclass(frozen=True, slots=True)
class Result:
    """What the tasks of one library gave."""

    version: str
    lines: dict[str, int]
    by_hand: dict[str, str]  # reason by task
    wrong: list[str]


class WrongAnswerError(Exception):
    """A task gave something else than it should."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="LIBRARY", help=f"of {', '.join(LIBRARIES)}")
    options = parser.parse_args()
    wanted = {name.lower() for name in options.only or LIBRARIES}
    if unknown := wanted - {name.lower() for name in LIBRARIES}:
        parser.error(f"--only names {', '.join(sorted(unknown))}; there are {', '.join(LIBRARIES)}")
    results = {}
    for name, module_name in LIBRARIES.items():
        if name.lower() not in wanted:
            continue
        try:
            module = importlib.import_module(f"benchmarks.calls.{module_name}")
        except ModuleNotFoundError as error:
            print(f"{name} is left out: no module {error.name}", file=sys.stderr)
            continue
        results[name] = run_tasks(module)
    print(table(results))
    wrong = [f"{name}: {line}" for name, result in results.items() for line in result.wrong]
    if wrong:
        sys.exit("wrong answers:\n" + "\n".join(wrong))


def run_tasks(module: ModuleType) -> Result:
    """Runs and checks all tasks of a library in a new folder. Each task is tried, whatever the one before gave."""
    wrong = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        store = module.create(Path(folder) / "store", RECORDS)
        try:
            for check in (_search, _page, _get, _count, _facets, _similar, _update, _delete, _add_folder):
                try:
                    check(module, store)
                except Exception as error:  # a library's own errors share no class
                    wrong.append(f"{check.__name__.removeprefix('_')}: {type(error).__name__}: {error!s:.300}")
        finally:
            if hasattr(store, "close"):
                store.close()
    lines = count_lines(Path(module.__file__ or "").read_text(encoding="utf-8"), list(TASKS))
    return Result(_version(module.PACKAGE), lines, module.BY_HAND, wrong)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return str(getattr(importlib.import_module(package), "__version__", "unknown"))


def _expect(seen: object, expected: object) -> None:
    if seen != expected:
        raise WrongAnswerError(f"expected {expected!r}, got {seen!r}")


def _expect_true(holds: bool, claim: str, seen: object) -> None:
    if not holds:
        raise WrongAnswerError(f"{claim}; got {seen!r}")


def _search(module: ModuleType, store: Any) -> None:
    recent = {record["id"] for record in RECORDS if record["year"] >= 2020}
    by_word = module.search(store, "XR-7741", 3)
    _expect(by_word[0], "manual")
    by_meaning = module.search(store, "why does dough get bigger", 3)
    _expect_true("yeast" in by_meaning, "yeast answers without a word of the query", by_meaning)
    everything = module.search(store, "bread", len(RECORDS))
    _expect_true(set(everything) <= recent, "the filter holds for every hit", everything)
    _expect_true(len(by_meaning) == len(set(by_meaning)) == 3, "three hits were asked for", by_meaning)


def _page(module: ModuleType, store: Any) -> None:
    first, second = (module.page(store, "bread and yeast", 3, number) for number in range(2))
    _expect(first + second, module.page(store, "bread and yeast", 6, 0))
    _expect(len({*first, *second}), 6)


def _get(module: ModuleType, store: Any) -> None:
    texts = {record["id"]: record["text"] for record in RECORDS}
    _expect(module.get(store, ["tides", "loom", "no such id"]), {id: texts[id] for id in ("tides", "loom")})


def _count(module: ModuleType, store: Any) -> None:
    _expect(module.count(store), sum(record["year"] >= 2020 for record in RECORDS))


def _facets(module: ModuleType, store: Any) -> None:
    _expect(dict(module.facets(store)), {"bread": 4, "cloth": 4, "sky": 4})


def _similar(module: ModuleType, store: Any) -> None:
    ids = module.similar(store, "yeast", 3)
    _expect(ids[0], "sourdough")
    _expect_true(len(ids) == 3 and "yeast" not in ids, "three documents, not the document itself", ids)


def _update(module: ModuleType, store: Any) -> None:
    n_encoded, n_recent = encoder().n_encoded, module.count(store)
    module.update(store, "rye", 2025)
    _expect(encoder().n_encoded - n_encoded, 0)
    _expect(module.count(store), n_recent + 1)
    _expect(dict(module.facets(store)), {"bread": 4, "cloth": 4, "sky": 4})
    ids = module.search(store, "rye gluten", 3)
    _expect_true("rye" in ids, "the changed document is found by its new year", ids)


def _delete(module: ModuleType, store: Any) -> None:
    module.delete(store)
    _expect(dict(module.facets(store)), {"cloth": 4, "sky": 4})
    _expect(module.get(store, ["yeast"]), {})
    left = module.page(store, "bread", len(RECORDS), 0)
    bread = {record["id"] for record in RECORDS if record["topic"] == "bread"}
    _expect_true(not bread & set(left), "no deleted document is found", left)


def _add_folder(module: ModuleType, store: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        module.add_folder(store, Path(folder))
    ids = module.get(store, list(FILES))
    _expect({id: text.strip() for id, text in ids.items()}, {id: text.strip() for id, text in FILES.items()})
    _expect(module.page(store, "sharpen a chisel", 1, 0), ["tools/chisel.txt"])


def table(results: dict[str, Result]) -> str:
    """Lines of code by task and library, and why a task is done by hand."""
    heads = [f"{name} {result.version}" for name, result in results.items()]
    lines = ["| task | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for task, about in TASKS.items():
        cells = [f"{result.lines[task]}{' *' if task in result.by_hand else ''}" for result in results.values()]
        lines.append(f"| {about} | " + " | ".join(cells) + " |")
    lines.append("| all ten | " + " | ".join(str(sum(result.lines.values())) for result in results.values()) + " |")
    n_calls = [f"{len(TASKS) - len(result.by_hand)} of {len(TASKS)}" for result in results.values()]
    lines.append("| tasks with a call of their own | " + " | ".join(n_calls) + " |")
    reasons = [
        f"- {name}, {TASKS[task]}: {why}" for name, result in results.items() for task, why in result.by_hand.items()
    ]
    return "\n".join([*lines, "", *reasons])


if __name__ == "__main__":
    main()
