"""Flipped and truncated files of every kind: a clear error or the right result, never a wrong one or a crash."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import plait
from plait.codec.pooling import Pooling
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import PlaitError
from plait.storage import verification
from plait.storage.check import check
from storage.grouped_tokens import DIM, batch, group_vectors

N_FLIPS, N_CUTS = 40, 6
Answer = list[list[tuple[str, float, str]]]


def make(path: Path, kind: str) -> None:
    fixed = 3 if kind.startswith("fixed") else None
    spec = EmbeddingSpec(dense=4, multi=DIM)
    with plait.open(
        path, create=True, spec=spec, pooling=None if fixed is None else Pooling(fixed=fixed), n_threads=1
    ) as index:
        for first in (0, 60):
            documents, spans, embeddings = batch(first, 60)
            index.add_embeddings(documents, embeddings, spans=spans)
        index.delete(["d7", "d70"])
        if kind.endswith("coded"):
            index.compact()
            index.delete(["d8"])


def answer(path: Path) -> Answer:
    """The results of searches of every kind, as a new process would see them."""
    verification.forget()
    query = Embeddings(np.ones((1, 4), np.float32), multi=MultiVectors.from_items([group_vectors(3)], dim=DIM))
    with plait.open(path, n_threads=1) as index:
        found = [index.search_embeddings(query, 5, mode=mode)[0] for mode in ("dense", "multi")]
        found.append(index.search_embeddings(query, 5, mode="multi", exact=True, filter="n >= 30 and n < 90")[0])
        found.append(index.search("word3 text15", 5, mode="bm25"))
    return [[(hit.id, hit.score, hit.text) for hit in own] for own in found]


@pytest.mark.parametrize("kind", ["float", "coded", "fixed float", "fixed coded"])
def test_damage_to_a_segment_is_an_error_or_changes_nothing(tmp_path: Path, kind: str) -> None:
    path, rng, outcomes = tmp_path / "index", random.Random(0), Counter[str]()
    make(path, kind)
    right = answer(path)
    for file in sorted(path.glob("segments/*/*.plait")):
        whole = file.read_bytes()
        places = [*range(0, 64, 7), *(rng.randrange(len(whole)) for _ in range(N_FLIPS)), len(whole) - 1]
        harmed = [bytes([*whole[:at], whole[at] ^ (1 << rng.randrange(8)), *whole[at + 1 :]]) for at in places]
        harmed += [whole[: rng.randrange(len(whole))] for _ in range(N_CUTS)]
        for content in harmed:
            file.write_bytes(content)
            with pytest.raises(PlaitError, match=file.name):
                answer(path)
            outcomes[file.name] += 1
        file.write_bytes(whole)
        assert answer(path) == right
    assert set(outcomes) == {"rows.plait", "dense.plait", "residual.plait" if "coded" in kind else "multi.plait"}


def test_damage_to_the_catalogue_is_an_error_or_changes_no_document_that_is_found(tmp_path: Path) -> None:
    path, rng = tmp_path / "index", random.Random(1)
    make(path, "coded")
    right, file = answer(path), path / "catalogue.sqlite"
    shutil.copy(file, tmp_path / "whole")
    whole, outcomes = file.read_bytes(), Counter[str]()
    texts = {f"d{number}": f"word{number % 12} text{number}" for number in range(120)}
    for number in range(250):
        at = rng.randrange(len(whole)) if number >= 50 else 2 * number
        cut = number % 25 == 24
        file.write_bytes(
            whole[:at] if cut else bytes([*whole[:at], whole[at] ^ (1 << rng.randrange(8)), *whole[at + 1 :]])
        )
        try:
            found = answer(path)
        except PlaitError:
            outcomes["error"] += 1
        else:
            assert all(texts[id] == text for own in found for id, _, text in own)
            outcomes["right" if found == right else "other"] += 1
            if found != right:
                assert not check(path).ok, f"the bit at {at} changes an answer, and check does not see it"
        for log in path.glob("catalogue.sqlite-*"):
            log.unlink()
    assert outcomes["right"] > outcomes["other"]
    assert outcomes["error"]
