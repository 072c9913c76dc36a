"""Writes the tables of docs/measurements/frameworks.md from the JUnit file of `make test-frameworks`.

    python docs/frameworks_page.py build/frameworks.xml

It runs in the environment of the tests, whose versions it names: `make docs-frameworks` does all of it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

PAGE = Path(__file__).parent / "measurements" / "frameworks.md"
TESTS = Path(__file__).parents[1] / "tests" / "integrations" / "frameworks"
TABLES = re.compile(r"(?<=<!-- tables -->\n).*(?=<!-- end of tables -->)", re.S)
SUITES = {"haystack": "haystack-ai", "langchain_tests": "langchain-tests"}  # module to distribution
# What the tests of each file need.
FILES = {
    "langchain": ["langchain-core"],
    "compat_langchain": ["langchain-core"],
    "llama_index": ["llama-index-core"],
    "haystack": ["haystack-ai"],
    "dspy": ["dspy"],
    "mteb": ["mteb"],
    "pyterrier": ["python-terrier"],
    "datasets": ["ir-datasets", "ranx"],
    "sql": ["duckdb", "polars", "pyarrow", "pandas"],
    "guides": [],  # all of the above
}
OUTCOMES = ("passed", "skipped", "failed")


def tables(cases: list[ElementTree.Element]) -> str:
    """Tables of the frameworks' suites and of plait's tests, and the reasons of what was skipped."""
    suites: dict[str, Counter[str]] = defaultdict(Counter)
    files: dict[str, Counter[str]] = defaultdict(Counter)
    skipped: Counter[tuple[str, str]] = Counter()
    for case in cases:
        suite, outcome = suite_of(case), outcome_of(case)
        file = case.get("classname", "").partition("test_")[2].split(".")[0]
        if suite:
            suites[suite][outcome] += 1
        elif file in FILES:
            files[file][outcome] += 1
        if outcome == "skipped":
            skipped[suite, reason_of(case)] += 1
    lines = ["Suites of the frameworks:", "", *head("suite", "of")]
    lines += [
        row(f"`{suite.rpartition('.')[2]}`", named(distribution_of(suite)), n) for suite, n in sorted(suites.items())
    ]
    lines += ["", "Tests of plait within the frameworks:", "", *head("tests", "with")]
    lines += [
        row(f"`test_{name}.py`", ", ".join(map(named, FILES[name])), files[name]) for name in FILES if name in files
    ]
    if skipped:
        lines += ["", "Skipped by the suites themselves:", ""]
        lines += [f"- {n} of `{suite.rpartition('.')[2]}`: {reason}" for (suite, reason), n in sorted(skipped.items())]
    return "\n".join([*lines, ""])


def suite_of(case: ElementTree.Element) -> str:
    return next((each.get("value", "") for each in case.iter("property") if each.get("name") == "suite"), "")


def distribution_of(suite: str) -> str:
    return SUITES[suite.partition(".")[0]]


def outcome_of(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def reason_of(case: ElementTree.Element) -> str:
    skip = case.find("skipped")
    return "" if skip is None else " ".join(skip.get("message", "").split())


def named(distribution: str) -> str:
    return f"{distribution} {version(distribution)}"


def head(*names: str) -> list[str]:
    return [f"| {' | '.join([*names, *OUTCOMES])} |", f"|{'---|' * len(names)}{'---:|' * len(OUTCOMES)}"]


def row(name: str, of: str, counts: Counter[str]) -> str:
    return f"| {name} | {of} | {' | '.join(str(counts[outcome]) for outcome in OUTCOMES)} |"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if missing := {file.stem.removeprefix("test_") for file in TESTS.glob("test_*.py")} - set(FILES):
        sys.exit(
            f"FILES lacks what the tests of {', '.join(sorted(missing))} need; add it, or the page leaves them out"
        )
    cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
    made = tables(cases)
    page, n_replaced = TABLES.subn(lambda _: made, PAGE.read_text(encoding="utf-8"))
    if not n_replaced:
        sys.exit(f"{PAGE} lacks the comments between which the tables stand")
    PAGE.write_text(page, encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
