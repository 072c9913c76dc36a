"""Numbers about the source tree: files, lines, importers, and the files that an add and a hybrid search pass through.

python -m benchmarks.tree            # of this checkout
python benchmarks/tree.py OTHER      # of another checkout, run with its interpreter
"""

from __future__ import annotations

import ast
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from types import FrameType


def modules(package: Path) -> dict[str, Path]:
    """The modules of a package by dotted name."""
    files = {}
    for file in package.rglob("*.py"):
        parts = (package.name, *file.relative_to(package).with_suffix("").parts)
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


def importers(files: dict[str, Path]) -> dict[str, set[str]]:
    """For each module, the modules that import it."""
    by_module: dict[str, set[str]] = defaultdict(set)
    for name, file in files.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    by_module[full if full in files else node.module].add(name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    by_module[alias.name].add(name)
    return by_module


def files_passed(package: Path, run: object) -> int:
    """The files of the package that run while `run` is called; imports at the top of a module do not count."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        run()  # type: ignore[operator]
    finally:
        sys.setprofile(None)
    return sum(str(package) in file for file in seen)


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    sys.path.insert(0, str(root / "src"))
    package = root / "src" / "plait"
    files = modules(package)
    lines = [len(file.read_text(encoding="utf-8").splitlines()) for file in files.values()]
    code = [file for file in files.values() if file.name != "__init__.py"]
    repeated = {name: count for name, count in Counter(file.name for file in code).items() if count > 1}
    single = [name for name, users in importers(files).items() if name in files and len(users) == 1]
    print(f"files in src: {len(files)}, median {statistics.median(lines):.0f} lines, {sum(lines)} in all")
    print(f"modules with one importer: {len(single)}; file names that occur more than once: {len(repeated)}")
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in (root / "docs").rglob("*.md"))
    print(f"words of docs: {words}")
    import plait

    with tempfile.TemporaryDirectory() as folder, plait.open(Path(folder) / "index", create=True) as index:
        texts = [{"id": str(number), "text": f"Text {number} about weaving.", "year": number} for number in range(40)]
        index.add(texts[:20])
        print(f"files an add passes through: {files_passed(package, lambda: index.add(texts[20:]))}")
        index.search("weaving", k=5, filter="year > 3")
        searched = files_passed(package, lambda: index.search("how is cloth made", k=5, filter="year > 4"))
        print(f"files a hybrid search passes through: {searched}")


if __name__ == "__main__":
    main()
