"""What `plait compare` found: tables, the queries that moved most with both rankings, JSON and rows for files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size

from plait.cli.tables import console, print_table, shown_p
from plait.cli.words import printable
from plait.evaluate import Comparison, Moved, Qrels, Run, ordered, query_rows
from plait.evaluate.per_query import Row

TOP = 5
WIDE = 120  # columns to fill where no terminal says how many there are


@dataclass(frozen=True, slots=True)
class Entry:
    """A document of a ranking; `relevance` is None if it was not judged."""

    id: str
    relevance: int | None

    @property
    def mark(self) -> str:
        """A star for a relevant document, with its grade above 1; a minus for one that was judged and is not."""
        if self.relevance is None:
            return " "
        if self.relevance <= 0:
            return "-"
        return "*" if self.relevance == 1 else f"*{self.relevance}"


@dataclass(frozen=True, slots=True)
class Shown:
    """A query that moved, with the first documents of both rankings."""

    measure: str
    baseline: str
    run: str
    moved: Moved
    text: str
    before: tuple[Entry, ...]
    after: tuple[Entry, ...]


def moved_of(
    result: Comparison, runs: Mapping[str, Run], qrels: Qrels, texts: Mapping[str, str], *, n: int
) -> list[Shown]:
    """The n queries that moved most for each run, by the first measure."""
    measure = next(iter(result.means))
    return [
        Shown(
            measure,
            result.baseline,
            run,
            moved,
            texts.get(moved.query, ""),
            _top(runs[result.baseline], moved.query, qrels),
            _top(runs[run], moved.query, qrels),
        )
        for run in runs
        if run != result.baseline
        for moved in result.moved(run, measure, n)
    ]


def _top(run: Run, query: str, qrels: Qrels) -> tuple[Entry, ...]:
    return tuple(Entry(id, qrels[query].get(id)) for id, _ in ordered(run.get(query, ()))[:TOP])


def titles_of(shown: Sequence[Shown], corpus: Path | None) -> dict[str, str]:
    """Titles, or else first words, of the documents that are shown."""
    wanted = {entry.id for one in shown for entry in (*one.before, *one.after)}
    if corpus is None or not wanted:
        return {}
    from plait.readers import documents_from

    titles = {}
    for document in documents_from([corpus], on_error="skip"):
        if document.id in wanted:
            titles[document.id] = document.title or document.text[:100]
    return titles


def print_tables(result: Comparison) -> None:
    """Means with intervals, and below them the differences to the baseline."""
    print_table(
        f"{len(result.queries):,} queries; mean and 95 % interval (bootstrap, {result.config.n_resamples:,} resamples)",
        ["measure", "run", "mean", "from", "to"],
        [
            [measure, run, *(f"{value:.4f}" for value in (mean.value, mean.low, mean.high))]
            for measure, means in result.means.items()
            for run, mean in means.items()
        ],
        n_words=2,
    )
    if not result.differences:
        return
    print()
    corrected = "not corrected" if result.config.correction == "none" else f"corrected ({result.config.correction})"
    print_table(
        f"difference to {result.baseline}; p two-sided, {corrected}",
        ["measure", "run", "change", "from", "to", "p random.", "p t test", "wins", "ties", "losses"],
        [
            [
                one.measure,
                one.run,
                *(f"{value:+.4f}" for value in (one.mean.value, one.mean.low, one.mean.high)),
                shown_p(one.p_randomisation_corrected),
                shown_p(one.p_t_corrected),
                *(f"{count:,}" for count in (one.wins, one.ties, one.losses)),
            ]
            for one in result.differences
        ],
        n_words=2,
    )


def print_moved(shown: Sequence[Shown], titles: Mapping[str, str]) -> None:
    """Each query with its text and the two rankings side by side; relevant documents have a star."""
    out = console()
    width = (out.width if out.is_terminal else WIDE) // 2 - 1
    run = None
    for one in shown:
        if one.run != run:
            run = one.run
            heading = (
                f"queries that moved most from {one.baseline} to {run}, by {one.measure} (* relevant, - judged not)"
            )
            out.print(f"\n{printable(heading)}", markup=False, soft_wrap=True)
        moved = one.moved
        text = " ".join(printable(one.text).split())
        change = f"{moved.baseline:.4f} -> {moved.run:.4f} ({moved.run - moved.baseline:+.4f})"
        out.print(f"\n{printable(moved.query)}  {change}  {text}".rstrip(), markup=False, soft_wrap=True)
        for rank in range(max(len(one.before), len(one.after))):
            left, right = (_cell(side, rank, titles) for side in (one.before, one.after))
            line = f"  {_fitted(left, width - 2)}  {_cut(right, width - 2)}"
            out.print(line.rstrip(), markup=False, soft_wrap=True)


def _cell(side: Sequence[Entry], rank: int, titles: Mapping[str, str]) -> str:
    if rank >= len(side):
        return ""
    entry = side[rank]
    title = " ".join(printable(titles.get(entry.id, "")).split())
    return f"{rank + 1} {entry.mark:<2} {printable(entry.id)}  {title}".rstrip()


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _fitted(text: str, width: int) -> str:
    return set_cell_size(_cut(text, width), width)


def print_json(result: Comparison, shown: Sequence[Shown], titles: Mapping[str, str]) -> None:
    """One JSON object."""
    fields: dict[str, Any] = {
        "baseline": result.baseline,
        "n_queries": len(result.queries),
        "config": asdict(result.config),
        "means": {name: {run: asdict(mean) for run, mean in means.items()} for name, means in result.means.items()},
        "differences": [asdict(one) for one in result.differences],
        "moved": [_moved_fields(one, titles) for one in shown],
    }
    print(json.dumps(_without_nan(fields), ensure_ascii=False))


def _moved_fields(one: Shown, titles: Mapping[str, str]) -> dict[str, Any]:
    def side(entries: Sequence[Entry]) -> list[dict[str, Any]]:
        return [{**asdict(entry), **({"title": titles[entry.id]} if entry.id in titles else {})} for entry in entries]

    return {
        "run": one.run,
        "measure": one.measure,
        "query": one.moved.query,
        "text": one.text,
        "baseline_value": one.moved.baseline,
        "run_value": one.moved.run,
        "baseline_ranking": side(one.before),
        "run_ranking": side(one.after),
    }


def _without_nan(value: Any) -> Any:
    """The same with null for what JSON cannot say: nan, and the infinite t of equal differences."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    return [_without_nan(part) for part in value] if isinstance(value, list) else value


def rows(result: Comparison) -> list[Row]:
    """One row for each run and query."""
    runs = next(iter(result.values.values()))
    return [
        row
        for run in runs
        for row in query_rows({name: values[run] for name, values in result.values.items()}, run=run)
    ]
