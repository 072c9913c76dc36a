"""What holds for every test."""

from __future__ import annotations

import os

# Before numpy is imported. The matrices of tests are small, and threads that wait for each other on a busy machine make
# a decomposition of a hundred rows a hundred times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
