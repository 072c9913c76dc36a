"""Rows to bytes: a codebook of centroids, and residual codes of a few bits a dimension."""
