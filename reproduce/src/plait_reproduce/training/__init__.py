"""The code that needs torch; only this folder imports it."""

from __future__ import annotations
