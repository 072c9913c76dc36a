"""Centroid ids that change while a kernel reads them, as in a mapped file that another program overwrites."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.samples import run_python

# A thread writes an id that does not exist and a valid one in turn. The kernels run without the interpreter lock. A
# kernel that reads an id again after its check reads gigabytes beyond its table.
RACE = """
import sys, threading, time
sys.path.insert(0, sys.argv[3])
import numpy as np
from plait.errors import InputError
from plait.scoring import residual

what, seconds, n_rows, dim = sys.argv[1], float(sys.argv[2]), 6000, 8
cells = np.zeros(n_rows, np.uint32)
begins = np.arange(0, n_rows, 30)
ends = begins + 30
narrow = np.ones((4, 32), np.uint8)
byte = np.zeros(n_rows, np.uint8)
table = np.zeros(256, np.float32)
query = residual.ResidualQuery(
    residual.pack_query(np.ones((8, dim), np.int8)), 8, 1.0, np.zeros(8, np.float32), np.zeros((4, 8), np.int16), 1.0
)
rows = residual.CodedRows(2, np.zeros((n_rows, dim // 4), np.uint8), cells, byte, table, byte, table)
kernels = {
    "centroid_maxsim": lambda: residual.centroid_maxsim(narrow, cells, begins, ends),
    "prune_rows": lambda: residual.prune_rows(narrow, cells, begins, ends, 3),
    "residual_maxsim": lambda: residual.residual_maxsim(query, rows, begins, ends),
    "residual_maxsim_strided": lambda: residual.residual_maxsim_strided(query, rows, 30, begins // 30),
    "residual_maxsim_listed": lambda: residual.residual_maxsim_listed(query, rows, np.arange(n_rows), ends),
}
end = time.monotonic() + seconds

def change():
    at = np.random.default_rng(0).integers(0, n_rows, 1 << 16).tolist()
    while time.monotonic() < end:
        for row in at:
            cells[row] = 0xFFFFFFF0
            cells[row] = 1

threading.Thread(target=change).start()
n_answered = n_refused = 0
while time.monotonic() < end:
    try:
        kernels[what]()
        n_answered += 1
    except InputError:
        n_refused += 1
print(n_answered, n_refused)
"""


@pytest.mark.parametrize(
    "kernel",
    ["centroid_maxsim", "prune_rows", "residual_maxsim", "residual_maxsim_strided", "residual_maxsim_listed"],
)
def test_an_id_that_changes_after_its_check_is_not_used(kernel: str) -> None:
    done = run_python(RACE, kernel, "0.7", Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 0
