"""Plots: reproducible files, and series that differ by more than colour."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from matplotlib.text import Annotation

from plait.errors import ConfigError
from plait.evaluate import Mean
from plait.evaluate.plots import (
    COLOURS,
    DASHES,
    HATCHES,
    MARKERS,
    MAX_SERIES,
    Curve,
    bars,
    check_file,
    curves,
    save,
    spread_out,
)

MEANS = {"bm25": [Mean(0.3, 0.2, 0.4), Mean(0.5, 0.4, 0.6)], "dense": [Mean(0.4, 0.3, 0.5), Mean(0.6, 0.6, 0.6)]}
CURVES = [
    Curve("one", [1, 10, 100], [0.1, 0.2, 0.3], [0.0, 0.1, 0.2], [0.2, 0.3, 0.4]),
    Curve("two", [1, 10], [0.3, 0.3]),
]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_plot_is_the_same_file(tmp_path: Path, suffix: str) -> None:
    for name in ("first", "second"):
        save(bars(["a", "b"], MEANS, y_label="nDCG@10", title="two sets"), tmp_path / f"{name}.{suffix}")
    first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("first", "second"))
    assert first == second
    assert len(first) > 1000


def test_bars_are_labelled_with_their_values_and_differ_by_hatching() -> None:
    (axes,) = bars(["a", "b"], MEANS, y_label="nDCG@10").axes
    written = [text.get_text() for text in axes.texts]
    assert written == ["0.300", "0.500", "0.400", "0.600"]
    assert len({patch.get_hatch() for patch in axes.patches}) == 2
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]


def test_the_ticks_of_a_single_group_name_the_bars() -> None:
    (axes,) = bars(["nDCG@10"], {name: means[:1] for name, means in MEANS.items()}, y_label="nDCG@10").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["bm25", "dense"]
    assert axes.get_legend() is None


def test_a_long_legend_has_room(tmp_path: Path) -> None:
    """Without room, matplotlib warns that axes collapsed, and warnings are errors here."""
    mean = Mean(0.5, 0.4, 0.6)
    labels = ["triples, the negatives of BM25", "lists of eight with the scores of a teacher", "neither of these"]
    save(bars(["a", "b"], {label: [mean, mean] for label in labels}, y_label="nDCG@10"), tmp_path / "plot.svg")


def test_curves_have_their_labels_at_their_ends() -> None:
    (axes,) = curves(CURVES, x_label="depth", y_label="recall", log_x=True).axes
    ends = {text.get_text(): text.xy for text in axes.texts if isinstance(text, Annotation)}
    assert ends == {"one": (100, 0.3), "two": (10, 0.3)}
    assert len({line.get_linestyle() for line in axes.lines}) == 2
    assert axes.get_xscale() == "log"


def test_every_series_looks_different() -> None:
    for styles in (COLOURS, HATCHES, MARKERS, DASHES):
        assert len(set(styles)) == MAX_SERIES


def test_overlapping_labels_are_spread_out_by_one_gap() -> None:
    assert spread_out([0.0, 100.0], 10) == [0.0, 100.0]
    assert spread_out([50.0, 52.0, 0.0], 10) == [46.0, 56.0, 0.0]
    assert spread_out([1.0, 1.0, 1.0], 10) == [-9.0, 1.0, 11.0]


def test_too_many_series_and_unknown_suffixes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"must end in \.png"):
        check_file("plot.gif")
    with pytest.raises(ConfigError, match="draw several plots"):
        curves(CURVES * 4, x_label="x", y_label="y")


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"plait\[eval\]"):
        check_file("plot.png")
