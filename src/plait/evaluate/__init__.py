"""Measuring: sets and runs in, measures, comparisons and plots out."""

from plait.evaluate.beir import load_beir
from plait.evaluate.compare import CompareConfig, Comparison, Difference, Mean, Moved, compare
from plait.evaluate.datasets import load_set
from plait.evaluate.irds import load_irds
from plait.evaluate.judged_set import JudgedSet
from plait.evaluate.measures import measure, measure_each, usual_measures
from plait.evaluate.msmarco import load_msmarco
from plait.evaluate.per_query import by_query, write_rows
from plait.evaluate.qrels import Qrels, read_qrels
from plait.evaluate.queries import read_queries
from plait.evaluate.rank import SetRun, rank_queries, rank_set, search_fingerprint
from plait.evaluate.runs import Run, ordered, read_run, without_self, write_run

__all__ = [
    "CompareConfig",
    "Comparison",
    "Difference",
    "JudgedSet",
    "Mean",
    "Moved",
    "Qrels",
    "Run",
    "SetRun",
    "by_query",
    "compare",
    "load_beir",
    "load_irds",
    "load_msmarco",
    "load_set",
    "measure",
    "measure_each",
    "ordered",
    "rank_queries",
    "rank_set",
    "read_qrels",
    "read_queries",
    "read_run",
    "search_fingerprint",
    "usual_measures",
    "without_self",
    "write_rows",
    "write_run",
]
