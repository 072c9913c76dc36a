"""Counts of the values of a field, as a table or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.storage.fields import Facets


def print_facets(facets: Facets, *, as_json: bool) -> None:
    """Prints a table; with `as_json`, one line of JSON."""
    counts = [(one.value, one.count) for one in facets.counts]
    if as_json:
        print(json.dumps({"facets": facets.field, "counts": counts, "values": facets.n_values}))
        return
    from plait.cli.tables import print_table

    rows = [["(none)" if value is None else _shown(value), f"{count:,}"] for value, count in counts]
    if facets.n_values > len(rows):
        rows.append([f"{facets.n_values - len(rows):,} more values", ""])
    print_table("", [facets.field, "documents"], rows, n_words=1)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
