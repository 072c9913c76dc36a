"""The page in the package is the build of `web/`. Needs no node: the build records a digest of its sources."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
WEB, STATIC = ROOT / "web", ROOT / "src/plait/serve/static"


def test_the_page_was_built_from_these_sources() -> None:
    # The same digest as web/build.mjs: of each file in order, its name, its size and its bytes.
    names = [f"src/{file.name}" for file in (WEB / "src").iterdir()]
    names += ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"]
    digest = hashlib.sha256()
    for name in sorted(names):
        content = (WEB / name).read_bytes()
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    recorded = re.findall(r'name="plait-build" content="(\w+)"', page)
    assert recorded == [digest.hexdigest()[:32]], "web/ was changed; run: make page"
    assert len(re.findall(rf"assets/app\.(?:js|css)\?{recorded[0]}\b", page)) == 2


def test_the_page_loads_nothing_from_elsewhere() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    named = re.findall(r'<(?:script|link|img)\b[^>]*?(?:src|href)="([^"]+)"', page)
    assert named
    assert [name for name in named if not (STATIC / name.partition("?")[0].removeprefix("assets/")).is_file()] == []
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=", page) == [], "the policy forbids inline code"
    assert re.findall(r"url\(|@import", (STATIC / "app.css").read_text(encoding="utf-8")) == []
