"""Every example of the guides of frameworks runs, and prints what the guide says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
GUIDES = sorted((ROOT / "docs" / "guides" / "frameworks").glob("*.md"))


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("default::ResourceWarning")  # the examples leave their index open
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_examples_print_what_the_guide_says(guide: Path) -> None:
    page = guide.read_text(encoding="utf-8")
    assert "```python" in page
    assert load_generator().with_outputs(page) == page
