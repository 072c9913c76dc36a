"""Makes a folder of mixed real files from the system folders of this machine.

    python -m benchmarks.files.corpus FOLDER --files 2000

Files are copied with their times, spread over formats as far as the machine has them: documentation, code, tables, mail
and archives of text under /usr, and the libraries of the Python that runs this. Formats that systems do not have (DOCX,
EPUB, notebooks, mail) are made from these texts. Some files that cannot be read are added on purpose.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import random
import shutil
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("/usr/share/doc", "/usr/share", "/usr/lib", "/usr/include", "/etc", sys.prefix, sys.base_prefix)
SUFFIXES = (
    ".html .htm .pdf .md .rst .txt .gz .py .c .h .cc .cpp .hpp .js .ts .java .go .rs .rb .pl .sh .lua .sql .json "
    ".jsonl .csv .tsv .parquet .feather .xml .yaml .toml .cfg .css .ipynb .docx .epub .eml .mbox .png .svg .so .mo"
)
MADE_SHARE = 0.1  # of the files that are made, half of them readable by one format alone
MAX_LISTED = 400_000
N_BROKEN = 10


def listed(max_bytes: int) -> dict[str, list[str]]:
    """Files of the machine by suffix; "" has those without one."""
    by_suffix: dict[str, list[str]] = defaultdict(list)
    suffixes = {*SUFFIXES.split(), ""}
    n_listed = 0
    seen: set[str] = set()
    for top in FOLDERS:
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in names:
                path = os.path.join(folder, name)  # noqa: PTH118
                suffix = Path(name).suffix.lower()
                if suffix in suffixes and path not in seen and _is_usable(path, max_bytes):
                    seen.add(path)
                    by_suffix[suffix].append(path)
                    n_listed += 1
            if n_listed > MAX_LISTED:
                return by_suffix
    return by_suffix


def _is_usable(path: str, max_bytes: int) -> bool:
    try:
        return Path(path).is_file() and not Path(path).is_symlink() and 20 <= Path(path).stat().st_size <= max_bytes
    except OSError:
        return False


def chosen(by_suffix: dict[str, list[str]], n_files: int, rng: random.Random) -> Iterator[str]:
    """Files in turn from each suffix, so that rare formats are there."""
    pools = {suffix: rng.sample(sorted(paths), len(paths)) for suffix, paths in sorted(by_suffix.items())}
    n_chosen = 0
    while n_chosen < n_files and any(pools.values()):
        for paths in pools.values():
            if paths and n_chosen < n_files:
                n_chosen += 1
                yield paths.pop()


def make_corpus(folder: Path, n_files: int, *, seed: int = 0, max_bytes: int = 20_000) -> dict[str, int]:
    """Fills an empty folder; returns the number of files of each suffix."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    n_made = int(n_files * MADE_SHARE)
    counts: dict[str, int] = defaultdict(int)
    texts: list[str] = []
    for number, path in enumerate(chosen(listed(max_bytes), n_files - n_made - N_BROKEN, rng)):
        parts = Path(path).parts
        # Two folders of each file are kept: README.md and __init__.py occur many times.
        target = folder / f"{number // 100:02d}" / "-".join(parts[-3:-1]).replace(" ", "_") / parts[-1]
        while target.exists():
            target = target.with_name(f"{number}-{target.name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
        counts[target.suffix.lower()] += 1
        if target.suffix in (".txt", ".rst", ".md"):
            texts.append(target.read_text(encoding="utf-8", errors="replace").replace("\0", " ")[:4000])
    for number in range(n_made):
        counts[_made(folder / "made", number, rng.choice(texts or ["text"])).suffix] += 1
    for number in range(N_BROKEN):
        counts[_broken(folder / "broken", number).suffix] += 1
    return dict(counts)


def _made(folder: Path, number: int, text: str) -> Path:
    """A file of a format that systems do not have."""
    folder.mkdir(exist_ok=True)
    kind = (".docx", ".epub", ".ipynb", ".eml", ".mbox")[number % 5]
    path = folder / f"{number}{kind}"
    lines = [line for line in text.split("\n") if line.strip()] or ["text"]
    safe = [html.escape("".join(char for char in line if char >= " ")) for line in lines]
    if kind == ".docx":
        name = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        body = "".join(f"<w:p><w:r><w:t>{line}</w:t></w:r></w:p>" for line in safe)
        _zip(path, {"word/document.xml": f'<w:document xmlns:w="{name}"><w:body>{body}</w:body></w:document>'})
    elif kind == ".epub":
        page = f"<h1>{safe[0]}</h1>" + "".join(f"<p>{line}</p>" for line in safe)
        container = '<c xmlns="urn:x"><rootfile full-path="b.opf"/></c>'
        package = '<p xmlns="urn:o"><item id="a" href="a.xhtml"/><itemref idref="a"/></p>'
        _zip(path, {"META-INF/container.xml": container, "b.opf": package, "a.xhtml": page})
    elif kind == ".ipynb":
        cells = [{"cell_type": "markdown", "source": line} for line in lines]
        path.write_text(json.dumps({"cells": cells}))
    else:
        message = f"From: a@example.org\nSubject: {lines[0].strip()[:60]}\n\n{text}\n"
        path.write_text(message if kind == ".eml" else f"From a\n{message}\nFrom b\n{message}", errors="replace")
    return path


def _zip(path: Path, parts: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def _broken(folder: Path, number: int) -> Path:
    """A file that its reader must refuse."""
    folder.mkdir(exist_ok=True)
    kind = (".pdf", ".docx", ".json", ".ipynb", ".gz", ".epub", ".jsonl", ".parquet", ".mbox", ".txt")[number % 10]
    path = folder / f"{number}{kind}"
    path.write_bytes(b"{ broken \0 \x80 content")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--max-bytes", type=int, default=20_000, help="of a file")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = make_corpus(options.folder, options.files, seed=options.seed, max_bytes=options.max_bytes)
    for suffix, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{count:6}  {suffix or 'without a suffix'}")
    print(f"{sum(counts.values()):6}  files in {options.folder}")


if __name__ == "__main__":
    main()
