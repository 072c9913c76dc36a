"""Runs the code of other libraries in the migration guides, and records what it printed.

    python docs/run_before.py --python pylate=ENV/bin/python --python chroma=ENV/bin/python ...

A `python` block after `<!-- not run: before, LIBRARY -->` in docs/guides/migrate*.md is code of that library. It runs
in an environment that has the library; `make test-migrations` makes them. Models of the hub become small checkpoints
with random weights, from tests/convert/checkpoints, and `embed` a function that makes a vector of the words of a text.
The result goes to tests/docs/migrations.json, and a test compares its hashes with the blocks: a block that changes has
to run again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "docs" / "migrations.json"
CHECKPOINTS = ROOT / "tests" / "convert" / "checkpoints"
BEFORE = re.compile(r"<!-- not run: before, (?P<library>[\w-]+) -->\n```python\n(?P<code>.*?)```", re.S)
MODELS = {
    "colbert-ir/colbertv2.0": "stanford",
    "lightonai/GTE-ModernColBERT-v1": "pylate-bert",
    "BAAI/bge-m3": "bge-m3",
}
PACKAGES = {
    "ragatouille": ["ragatouille", "colbert-ai", "transformers", "torch"],
    "pylate": ["pylate", "fast-plaid", "sentence-transformers", "transformers", "torch"],
    "flagembedding": ["FlagEmbedding", "transformers", "torch"],
    "chroma": ["chromadb"],
    "lancedb": ["lancedb"],
    "qdrant": ["qdrant-client"],
}
# Before the code of a guide: `embed`, and the versions of the packages, which the last line of the output has.
START = """
import zlib


def embed(texts):
    def vector(text):
        numbers = [0.0] * 64
        for word in text.lower().strip(".").split():
            numbers[zlib.crc32(word.encode()) % 64] += 1.0
        return numbers

    return [vector(text) for text in texts]


if __name__ == "__main__":
"""
END = """
    from importlib.metadata import PackageNotFoundError, version

    def version_of(name):
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    print("VERSIONS", {name: version_of(name) for name in %r})
"""
TIMEOUT = 1500  # seconds; RAGatouille compiles extensions when it first makes an index


def blocks() -> dict[str, str]:
    """The code of each library in the guides."""
    pages = sorted((ROOT / "docs" / "guides").glob("migrate*.md"))
    return {block["library"]: block["code"] for page in pages for block in BEFORE.finditer(page.read_text("utf-8"))}


def digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def wide_stanford(folder: Path) -> Path:
    """A copy of the checkpoint of colbert-ai with vectors of 32 dimensions: PLAID takes multiples of 32 only."""
    import numpy as np
    from safetensors.numpy import load_file, save_file

    copy = Path(shutil.copytree(CHECKPOINTS / "stanford", folder / "stanford"))
    tensors = load_file(copy / "model.safetensors")
    shape = (32, tensors["linear.weight"].shape[1])
    tensors["linear.weight"] = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((copy / "artifact.metadata").read_text(encoding="utf-8"))
    (copy / "artifact.metadata").write_text(json.dumps({**settings, "dim": 32}), encoding="utf-8")
    return copy


def run(library: str, code: str, python: str) -> dict[str, Any]:
    """What the code printed, and the versions; or the last line of its error."""
    with tempfile.TemporaryDirectory() as folder:
        for name, checkpoint in MODELS.items():
            if f'"{name}"' in code:
                model = wide_stanford(Path(folder)) if checkpoint == "stanford" else CHECKPOINTS / checkpoint
                code = code.replace(f'"{name}"', repr(str(model)))
        indented = "".join(f"    {line}" if line.strip() else line for line in code.splitlines(keepends=True))
        script = Path(folder, "before.py")
        script.write_text(START + indented + END % PACKAGES[library], encoding="utf-8")
        done = subprocess.run(
            [str(Path(python).absolute()), str(script)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
    lines = done.stdout.splitlines()
    versions = next((line.removeprefix("VERSIONS ") for line in lines if line.startswith("VERSIONS ")), "{}")
    # The end of the output, without the log lines of RAGatouille, which have times and paths.
    printed = [line for line in lines if line.strip() and not line.startswith("VERSIONS ") and "/" not in line][-2:]
    error = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    return {
        "versions": json.loads(versions.replace("'", '"').replace("None", "null")),
        "printed": printed,
        "error": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", required=True, metavar="LIBRARY=PYTHON")
    chosen = dict(one.split("=", 1) for one in parser.parse_args().python)
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    failed = []
    for library, python in chosen.items():
        code = blocks()[library]
        result = run(library, code, python)
        record[library] = {"sha256": digest(code), **result}
        print(f"{library}: {result['error'][0] if result['error'] else ' | '.join(result['printed'][-3:])}")
        failed += [library] if result["error"] else []
    RECORD.write_text(json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
