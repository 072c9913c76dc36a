"""Measuring: BEIR folders in, TREC runs and measures out."""
