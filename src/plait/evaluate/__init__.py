"""Measuring: BEIR folders in, TREC runs and measures out."""

from plait.evaluate.beir import BeirSet, load_beir
from plait.evaluate.measures import measure, measure_each, usual_measures
from plait.evaluate.runs import Run, ordered, read_run, without_self, write_run

__all__ = [
    "BeirSet",
    "Run",
    "load_beir",
    "measure",
    "measure_each",
    "ordered",
    "read_run",
    "usual_measures",
    "without_self",
    "write_run",
]
