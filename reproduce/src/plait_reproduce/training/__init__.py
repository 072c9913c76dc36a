"""Arms that need torch; nothing else of the reproduction imports it."""

from __future__ import annotations
