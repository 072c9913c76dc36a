"""One file for each engine that is compared, run in an interpreter that has it. They share `serve.py`."""

from __future__ import annotations
