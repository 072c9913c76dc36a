"""Traces: what they show adds up."""

from __future__ import annotations

import json

from plait.search.trace import Stage, Trace


def traced() -> Trace:
    within = Trace([Stage("cells", 0.002, {"cells": 8}), Stage("cells", 0.001, {"cells": 4}), Stage("codes", 0.004)])
    trace = Trace([Stage("encode", 0.01), Stage("bm25", 0.0025)])
    trace.add(within, under="multi")
    trace.stages.append(Stage("multi", 0.0075))
    return trace


def test_the_total_counts_inner_stages_once() -> None:
    assert abs(traced().total - 0.02) < 1e-12
    assert Trace([Stage("multi: codes", 0.5)]).total == 0.5
    assert Trace().total == 0


def test_the_table_has_times_shares_and_counts_with_inner_stages_below_outer_ones() -> None:
    lines = [line.split() for line in str(traced()).splitlines()]
    assert lines == [
        ["stage", "ms", "share"],
        ["encode", "10.00", "50%"],
        ["bm25", "2.50", "12%"],
        ["multi", "7.50", "38%"],
        ["cells", "3.00", "15%", "12", "cells"],
        ["codes", "4.00", "20%"],
        ["total", "20.00", "100%"],
    ]


def test_stages_of_one_name_are_added_up() -> None:
    trace = traced()
    trace.stages += traced().stages
    assert "encode" in str(trace)
    assert str(trace).count("encode") == 1
    assert "24 cells" in str(trace)


def test_a_table_fits_a_narrow_terminal() -> None:
    counts = {"cells": 80, "postings": 1_234_567, "items": 40_000, "rows": 3_000_000, "bytes": 123_456_789}
    trace = Trace([Stage("cells", 0.5, counts)])
    table = trace.table(60)
    assert max(map(len, table.splitlines())) <= 60
    assert "123.5 MB" in table
    assert "1,234,567 postings" in " ".join(table.split())


def test_fields_are_plain_json() -> None:
    fields = json.loads(json.dumps(traced().as_fields()))
    assert [stage["stage"] for stage in fields["stages"]] == [
        "encode",
        "bm25",
        "multi: cells",
        "multi: codes",
        "multi",
    ]
    assert fields["stages"][2]["cells"] == 12
    assert abs(fields["seconds"] - 0.02) < 1e-12
