"""k-nearest-neighbour search by a cross-encoder, within a budget of calls: ANNCUR, ADACUR, AXN and their baselines.

`calls`, `algebra`, `anncur`, `adacur` and `axn` work on arrays: an item is a row number, and its scorer is any
function, so that a cached matrix and a model serve alike. `index`, `build`, `retriever` and `modes` apply them to the
documents of an index.
"""
