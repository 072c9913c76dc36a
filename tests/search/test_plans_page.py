"""The page on plans lists every mode and every setting with its default."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from plait.search.multivector.paper_methods import CandidateConfig
from plait.search.multivector.query import ProbeConfig
from plait.search.plan import METHODS, MODES
from plait.search.sparse import SparseConfig

PAGE = (Path(__file__).parents[2] / "docs" / "plans.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_listed(mode: str) -> None:
    assert f"\n| `{mode}` | " in PAGE


@pytest.mark.parametrize("config", [ProbeConfig, CandidateConfig, SparseConfig, *METHODS.values()])
def test_every_setting_is_listed_with_its_default(config: type) -> None:
    for field in fields(config):
        default = "" if field.default is None else f"{field.default} |"
        assert f"`{field.name}` | {default}" in PAGE
