"""Batches of random and of similar lengths: padding and its cost. And split batches: gradient and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np

from plait.encode.chunking import with_title
from plait.errors import ConfigError
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

WHOLE = 1 << 30  # no limit on the tokens of a batch


def padding(workbench: Workbench, settings: Settings) -> Outcome:
    """Settings: sets whose documents are mixed, n_texts, batch size. `each` has padded over real tokens of each batch;
    facts are CPU seconds of encoding all texts in either order, batch by batch in turn."""
    encoder = workbench.encoder(length=settings["length"])
    texts = [
        with_title(document.title, document.text)
        for name in settings["sets"]
        for document in workbench.texts(name).documents
    ]
    random = np.random.default_rng(0)
    sample = [texts[number] for number in random.permutation(len(texts))[: settings["n_texts"]]]
    lengths = np.array([min(len(encoder.tokens(text, is_query=True)), settings["length"]) for text in sample])
    orders = {"random": random.permutation(len(sample)), "grouped": np.argsort(lengths, kind="stable")}
    size = settings["batch"]
    batches = {
        name: [order[start : start + size] for start in range(0, len(order), size)] for name, order in orders.items()
    }
    each = {
        name: {
            str(number): float(lengths[batch].max() * len(batch) / lengths[batch].sum())
            for number, batch in enumerate(all_)
        }
        for name, all_ in batches.items()
    }
    seconds = dict.fromkeys(batches, 0.0)
    for pair in zip(*batches.values(), strict=True):
        for name, batch in zip(batches, pair, strict=True):
            began = time.process_time()
            encoder.encode_documents([sample[text] for text in batch], batch_tokens=WHOLE)
            seconds[name] += time.process_time() - began
    padded = {name: sum(float(lengths[batch].max() * len(batch)) for batch in all_) for name, all_ in batches.items()}
    facts = {f"{name} padded": tokens / float(lengths.sum()) for name, tokens in padded.items()}
    return Outcome(each, {**facts, **{f"{name} seconds": elapsed for name, elapsed in seconds.items()}})


def split_batches(workbench: Workbench, settings: Settings) -> Outcome:
    """Runs `plait_reproduce.training.split_batches` in a new process, because peak memory never falls within a process.
    Settings: n_texts, length, parts."""
    del workbench
    code = (
        "import json, sys; from plait_reproduce.training.split_batches import gradient_and_memory; "
        "print(json.dumps(gradient_and_memory(**json.loads(sys.argv[1]))))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, json.dumps(dict(settings))], capture_output=True, text=True, check=False
    )
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ConfigError(f"split batches could not be measured ({last[0]}); is 'plait[train]' installed?")
    return Outcome(facts=json.loads(answer.stdout))
