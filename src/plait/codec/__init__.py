"""Rows to bytes: a codebook of centroids, residual codes, pooling, impacts of sparse vectors, and dense IVF."""
