"""Multi-vector search: plait's method and those of the papers, one file each."""
