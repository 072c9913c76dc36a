"""The calls of PyLate through PyLate itself and through plait.compat."""
