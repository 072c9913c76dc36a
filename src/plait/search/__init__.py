"""Searching: modes that build plans of retrievers, fusion and rescoring, and plans that run on a snapshot."""
