"""Benchmarks, one folder for each group. Run them from the root of a clone, as modules:

python -m benchmarks.embed              writes the token vectors that other benchmarks read
python -m benchmarks.engine.run         multi-vector engines side by side: recall against time
python -m benchmarks.engine.updates     an index in use: deletes, filters, start-up, dense and sparse search
python -m benchmarks.serve.run          the server beside the library; `overload` and `peers` stress and compare it
python -m benchmarks.kernels.run        every kernel with every instruction set
python -m benchmarks.quality.zero_shot  nDCG@10 of models on judged sets; `quality` has more
python -m benchmarks.cur.recall         search with a cross-encoder that may score few documents
"""
