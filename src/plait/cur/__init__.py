"""Nearest neighbours by a cross-encoder with few calls of it: ANNCUR, ADACUR, AXN and their baselines, on arrays.

An item is a row number. What scores items for a query is any function, so that a cached matrix and a model serve alike.
"""
