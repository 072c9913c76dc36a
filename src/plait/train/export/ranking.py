"""What rounding costs in ranks: the same collection searched with each precision."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from plait.encode.protocol import Encoder
from plait.engine import open_index
from plait.errors import InputError
from plait.evaluate import BeirSet, load_beir, measure
from plait.search.plans import MODES
from plait.sources import documents_from

MEASURE, K = "nDCG@10", 100


@dataclass(frozen=True, slots=True)
class Ranking:
    """nDCG@10 of each mode, by precision."""

    data: str
    split: str
    n_queries: int
    values: Mapping[str, Mapping[str, float]]  # precision -> mode -> measure


def read_collection(data: Path, split: str) -> BeirSet:
    """A BEIR folder with a corpus; told before anything is exported if it is none."""
    beir = load_beir(data, split)
    if beir.corpus is None:
        raise InputError(f"there is no corpus in {data}; ranks are measured by searching one")
    return beir


def measure_ranks(
    encoders: Mapping[str, Encoder], beir: BeirSet, on_stage: Callable[[str], None] = lambda _: None
) -> Ranking:
    """Indexes the corpus with each encoder and asks all judged queries, scoring exactly."""
    assert beir.corpus is not None
    values: dict[str, dict[str, float]] = {}
    for precision, encoder in encoders.items():
        on_stage(f"searching {beir.path.name} with {precision}")
        shape = encoder.shape
        strands = [name for name in ("dense", "sparse", "multi") if getattr(shape, name) is not None]
        modes = [mode for mode in (*strands, "hybrid") if mode in MODES]
        with (
            tempfile.TemporaryDirectory() as folder,
            open_index(Path(folder) / "index", create=True, encoder=encoder) as index,
        ):
            index.add(documents_from([beir.corpus]))
            values[precision] = {}
            for mode in modes:
                ranked = index.rank(list(beir.queries.values()), K, mode=mode, exact=True)
                run = dict(zip(beir.queries, ranked, strict=True))
                values[precision][mode] = measure(run, beir.qrels, [MEASURE])[MEASURE]
    return Ranking(beir.path.name, beir.split, len(beir.queries), values)
