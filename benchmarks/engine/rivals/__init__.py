"""One module for each engine, run in an interpreter that has it. They share `serve.py`."""

from __future__ import annotations
