"""Tests that start Ray run with `make test-cluster`, in an environment of their own."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("PLAIT_TEST_RAY") else ["on_ray/*"]
