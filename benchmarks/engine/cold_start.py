"""Time of a first `plait search` in a new process, against the least that any program with the same model needs.

    python -m benchmarks.engine.cold_start [--rounds 15]

Both programs start a new Python. The minimal one imports numpy, onnxruntime and tokenizers, loads the tokenizer and the
graph of the bundled model, and runs the graph once on the query. The other is `plait search` on a small index. Rounds
alternate; the result is the ratio of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import plait
from plait.encode.load import find_model
from plait.encode.model_card import read_card

QUERY = "how are threads woven into cloth"

BARE = """
import numpy, onnxruntime, tokenizers
tokenizer = tokenizers.Tokenizer.from_file({tokenizer!r})
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession({graph!r}, options, providers=["CPUExecutionProvider"])
ids = numpy.array([tokenizer.encode({query!r}).ids])
feed = {{"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}}
session.run(None, {{given.name: feed[given.name] for given in session.get_inputs()}})
"""


def bare_program() -> str:
    """A script that loads the libraries and the model and runs the query once."""
    folder = find_model()
    card = read_card(folder)
    return BARE.format(
        tokenizer=str(folder / card.tokenizer.file), graph=str(folder / card.precisions["int8"].file), query=QUERY
    )


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        with plait.open(path, create=True) as index:
            index.add([{"id": str(n), "text": f"Text {n} is about cloth, thread and looms."} for n in range(200)])
        commands = {
            "bare": [sys.executable, "-c", bare_program()],
            "plait search": [sys.executable, "-m", "plait", "search", str(path), QUERY],
            "plait search --mode bm25": [sys.executable, "-m", "plait", "search", str(path), QUERY, "--mode", "bm25"],
        }
        for command in commands.values():
            seconds(command)  # warm-up: the first run reads the files from disk
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                taken[name].append(seconds(command))
    bare = statistics.median(taken["bare"])
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:26} {median * 1000:7.0f} ms   {median / bare:5.2f} x bare   (least {min(times) * 1000:.0f})")


if __name__ == "__main__":
    main()
