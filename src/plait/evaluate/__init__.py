"""Evaluation: datasets and runs in, measures, comparisons and plots out."""

from plait.evaluate.compare import CompareConfig, Comparison, Difference, Mean, Moved, compare
from plait.evaluate.dataset_files import Qrels, read_qrels, read_queries
from plait.evaluate.datasets import Dataset, load_beir, load_dataset, load_irds, load_msmarco
from plait.evaluate.measures import measure, measure_each, usual_measures
from plait.evaluate.per_query import query_rows, write_rows
from plait.evaluate.rank import DatasetRun, rank_dataset, rank_queries, search_fingerprint
from plait.evaluate.runs import Run, ordered, read_run, without_self, write_run

__all__ = [
    "CompareConfig",
    "Comparison",
    "Dataset",
    "DatasetRun",
    "Difference",
    "Mean",
    "Moved",
    "Qrels",
    "Run",
    "compare",
    "load_beir",
    "load_dataset",
    "load_irds",
    "load_msmarco",
    "measure",
    "measure_each",
    "ordered",
    "query_rows",
    "rank_dataset",
    "rank_queries",
    "read_qrels",
    "read_queries",
    "read_run",
    "search_fingerprint",
    "usual_measures",
    "without_self",
    "write_rows",
    "write_run",
]
