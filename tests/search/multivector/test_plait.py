"""Compressed search: with everything read it is exhaustive, and its scores are those of the decoded rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
from plait.codec import kmeans
from plait.codec.assign import NearestCentroids
from plait.codec.codebook import Codebook
from plait.codec.coded_items import CodedItems, Postings
from plait.codec.residual import ResidualCodec
from plait.embeddings import MultiVectors
from plait.errors import ConfigError
from plait.search.multivector.exhaustive import Exhaustive
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.plait import PlaitSearch
from plait.search.multivector.probe import ProbeParams, ResolvedProbe, resolve_probe
from plait.search.multivector.query import MultiVectorQuery
from plait.search.multivector.segment_group import CodedPart
from plait.search.trace import Trace


def unit(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def corpus(n_items: int = 300, dim: int = 32, seed: int = 0) -> MultiVectors:
    """Rows around common middles, as token vectors are; items of 0 to 12 rows."""
    rng = np.random.default_rng(seed)
    middles = rng.standard_normal((40, dim))
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 13, n_items))]).astype(np.int64)
    rows = middles[rng.integers(0, 40, offsets[-1])] + 0.6 * rng.standard_normal((offsets[-1], dim))
    return MultiVectors(unit(rows), offsets)


def coded(documents: MultiVectors, *, bits: int = 2, n_cells: int = 64, keep_8bit: bool = False) -> CodedItems:
    rows = documents.values.astype(np.float32)
    means = kmeans.train(rows, n_cells)
    cells = NearestCentroids(means).assign(rows)
    codebook = Codebook.rounded(means)
    codec = ResidualCodec.fit(codebook, bits, rows, cells)
    stored = codec.encode(rows, cells)
    assert stored.cells is not None
    second = ResidualCodec.fit(codebook, 8, rows, cells)
    return CodedItems(
        codec,
        stored,
        documents.offsets,
        Postings.of(stored.cells, documents.offsets, len(codebook)),
        codes_8bit=(second, second.encode(rows, cells)) if keep_8bit else None,
    )


def queries(documents: MultiVectors, n_queries: int = 20) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(9)
    drawn = [rng.integers(0, len(documents.values), rng.integers(1, 30)) for _ in range(n_queries)]
    noise = 0.05 * rng.standard_normal((1, documents.dim))
    return [unit(documents.values[rows].astype(np.float64) + noise) for rows in drawn]


def probed(
    query: NDArray[np.float32],
    items: CodedItems,
    k: int,
    probe: ResolvedProbe,
    *,
    allowed_bits: NDArray[np.uint8] | None = None,
    trace: Trace | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The k best items that plait's method finds."""
    search = PlaitSearch(query, [CodedPart(items, allowed_bits=allowed_bits)], trace=trace)
    return search.passages(probe, k).top(k)


def exhaustive(
    query: NDArray[np.float32], items: CodedItems, k: int, numbers: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    found = Exhaustive().search(MultiVectorQuery(query, items), k, ItemFilter(items, numbers))
    return found.items, found.scores


def probe_of(n_probe: int | None = None) -> ResolvedProbe:
    return resolve_probe(ProbeParams(n_probe=n_probe), n_passages=1000, k=10)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_scores_are_those_of_the_decoded_rows(bits: int) -> None:
    documents = corpus()
    items = coded(documents, bits=bits)
    decoded = MultiVectors(items.codec.decode(items.rows), documents.offsets)
    for query in queries(documents, 5):
        found, scores = exhaustive(query, items, len(documents))
        wanted = reference.maxsim(query, decoded)[found]
        np.testing.assert_allclose(scores, wanted, atol=0.02 * len(query))


@pytest.mark.parametrize("keep_8bit", [False, True])
def test_reading_everything_equals_exhaustive_search(keep_8bit: bool) -> None:
    documents = corpus()
    items = coded(documents, keep_8bit=keep_8bit)
    everything = ResolvedProbe(n_probe=1000, n_candidates=1000, n_code_scored=1000, n_rescored=1000)
    for query in queries(documents):
        found, scores = probed(query, items, 10, everything)
        wanted, wanted_scores = exhaustive(query, items, 10)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(scores, wanted_scores)


def recall(items: CodedItems, documents: MultiVectors, probe: ResolvedProbe | None) -> float:
    shares = []
    for query in queries(documents, 40):
        truth = set(np.argsort(-reference.maxsim(query, documents), kind="stable")[:10].tolist())
        found, _ = exhaustive(query, items, 10) if probe is None else probed(query, items, 10, probe)
        shares.append(len(truth & set(found.tolist())) / 10)
    return float(np.mean(shares))


def test_more_bits_and_8_bit_codes_come_closer_to_the_floats() -> None:
    documents = corpus()
    one, two, four = (recall(coded(documents, bits=bits), documents, None) for bits in (1, 2, 4))
    keep_8bit = recall(coded(documents, keep_8bit=True), documents, None)
    assert one < two < four <= keep_8bit
    assert keep_8bit >= 0.97


def test_probing_a_few_cells_keeps_nine_in_ten_of_what_exhaustive_search_finds() -> None:
    documents = corpus(1500)
    items = coded(documents, n_cells=128)
    probe = ResolvedProbe(n_probe=8, n_candidates=300, n_code_scored=64, n_rescored=32)
    assert recall(items, documents, probe) >= 0.9 * recall(items, documents, None)


def test_only_allowed_items_are_found() -> None:
    documents = corpus()
    items = coded(documents)
    allowed = np.zeros(len(documents), bool)
    allowed[::7] = True
    bits = np.packbits(allowed, bitorder="little")
    for query in queries(documents, 5):
        found, _ = probed(query, items, 10, probe_of(n_probe=64), allowed_bits=bits)
        assert allowed[found].all()
        wanted, _ = exhaustive(query, items, 10, np.flatnonzero(allowed))
        assert len(set(found.tolist()) & set(wanted.tolist())) >= 8


def test_one_item_and_one_cell_are_enough() -> None:
    documents = MultiVectors(unit(np.ones((3, 8))), np.array([0, 3], np.int64))
    found, scores = probed(documents[0].astype(np.float32), coded(documents), 10, probe_of())
    assert found.tolist() == [0]
    np.testing.assert_allclose(scores, [3.0], atol=0.05)


def test_each_stage_counts_what_it_reads() -> None:
    documents = corpus()
    trace = Trace()
    probe = ResolvedProbe(n_probe=8, n_candidates=100, n_code_scored=64, n_rescored=32)
    probed(queries(documents, 1)[0], coded(documents, keep_8bit=True), 5, probe, trace=trace)
    assert [stage.name for stage in trace.stages] == ["centroids", "cells", "by centroids", "codes", "8-bit codes"]
    assert all(stage.counts for stage in trace.stages)


def test_a_count_of_0_is_refused() -> None:
    with pytest.raises(ConfigError, match="n_probe is 0"):
        ProbeParams(n_probe=0)
