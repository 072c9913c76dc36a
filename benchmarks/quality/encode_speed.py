"""Passages per second: plait's encoder against sentence-transformers with the same weights, length and threads.

    python -m benchmarks.quality.encode_speed --data scifact --baseline-python other-venv/bin/python \\
        --baseline-model gte-small-hf

`--data` is a folder with corpus.jsonl or corpus.jsonl.gz. The baseline runs in another interpreter, which has torch and
sentence-transformers, on a model folder that `models/scripts/gte_small_to_hf.py` writes. The two take turns, so both
meet the same load; the medians and their ratio are printed, and saved with --json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BASELINE = """
import json, sys, time
import torch
setup = json.loads(sys.stdin.readline())
torch.set_num_threads(setup["n_threads"])
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(setup["model"], device="cpu")
model.max_seq_length = setup["length"]
model.encode(setup["texts"][:8])
print("ready", flush=True)
for _ in sys.stdin:
    start, used = time.perf_counter(), time.process_time()
    model.encode(setup["texts"], batch_size=setup["batch_size"], show_progress_bar=False)
    print(json.dumps([time.perf_counter() - start, time.process_time() - used]), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=None, help="plait's model; the bundled one if left out")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--baseline-python", type=Path)
    parser.add_argument("--baseline-model", type=Path)
    parser.add_argument("--texts", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=32, help="of the baseline; its own default is 32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()
    if (arguments.baseline_python is None) != (arguments.baseline_model is None):
        parser.error("--baseline-python and --baseline-model go together")

    start = time.perf_counter()
    from plait.encode.load import load_model

    encoder = load_model(arguments.model, precision=arguments.precision, n_threads=arguments.threads)
    loaded = time.perf_counter() - start
    texts = list(read_texts(arguments.data, arguments.texts))
    length = encoder.card.document.length
    baseline = start_baseline(arguments, texts, length) if arguments.baseline_python else None
    encoder.encode_documents(texts[:8])
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    for _ in range(arguments.rounds):
        start, used = time.perf_counter(), time.process_time()
        encoder.encode_documents(texts)
        ours.append([time.perf_counter() - start, time.process_time() - used])
        if baseline:
            theirs.append(ask(baseline, "go"))
    report: dict[str, Any] = {"n_texts": len(texts), "length": length, "threads": arguments.threads}
    report |= {"load_seconds": round(loaded, 3)}
    report |= {"plait": rates(ours, len(texts))}
    if baseline:
        report |= {"baseline": rates(theirs, len(texts))}
        report |= {"ratio": ratios(ours, theirs)}
        baseline.terminate()
    print(json.dumps(report, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def read_texts(folder: Path, n_texts: int) -> Iterator[str]:
    """The first texts of a corpus, with titles."""
    path = folder / "corpus.jsonl"
    compressed = not path.exists()
    with gzip.open(f"{path}.gz", "rt", encoding="utf-8") if compressed else path.open(encoding="utf-8") as lines:
        for _, line in zip(range(n_texts), lines, strict=False):
            document = json.loads(line)
            yield f"{document.get('title') or ''} {document['text']}".strip()


def start_baseline(arguments: argparse.Namespace, texts: list[str], length: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [str(arguments.baseline_python), "-c", BASELINE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    setup: dict[str, Any] = {
        "model": str(arguments.baseline_model),
        "length": length,
        "n_threads": arguments.threads,
        "batch_size": arguments.batch_size,
        "texts": texts,
    }
    assert ask(process, json.dumps(setup), parse=False) == "ready"
    return process


def ask(process: subprocess.Popen[str], line: str, *, parse: bool = True) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    answer = process.stdout.readline().strip()
    if not answer:
        sys.exit("the baseline ended; does its interpreter have torch and sentence-transformers?")
    return json.loads(answer) if parse else answer


def rates(rounds: list[list[float]], n_texts: int) -> dict[str, float]:
    """Passages per second of wall time and of CPU time, which other load disturbs less."""
    wall, used = (statistics.median(times) for times in zip(*rounds, strict=True))
    return {"passages_per_second": round(n_texts / wall, 2), "per_processor_second": round(n_texts / used, 2)}


def ratios(ours: list[list[float]], theirs: list[list[float]]) -> dict[str, float]:
    """The median over rounds of how many times faster plait was."""
    by_round = zip(ours, theirs, strict=True)
    faster = [(their[0] / our[0], their[1] / our[1]) for our, their in by_round]
    wall, used = (statistics.median(values) for values in zip(*faster, strict=True))
    return {"wall": round(wall, 2), "processor": round(used, 2)}


if __name__ == "__main__":
    main()
