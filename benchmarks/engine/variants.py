"""The variants that are compared: every engine with its builds, and the settings of its curve.

Settings go from fast to thorough. For other engines they range from below the defaults to where recall no longer rises;
where a library chooses a setting itself, that choice is one point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """One curve. Variants with the same engine and build share an index."""

    name: str
    engine: str  # a module of rivals/
    build: Mapping[str, Any]
    sweep: Sequence[Settings]
    slow: bool = False  # gets fewer queries
    open: Mapping[str, Any] | None = None  # options for opening the index, not for building it
    beside: int = 0  # bytes per vector that a search reads from outside the index

    @property
    def index_name(self) -> str:
        return "-".join([self.engine, *(f"{name}{value}" for name, value in self.build.items())])


MODULES = {
    "plait": "plait",
    "fast-plaid": "fast_plaid",
    "xtr-warp-rs": "xtr_warp",
    "faiss": "faiss_ivfpq",
    "lancedb": "lance",
    "qdrant-edge": "qdrant",
    "torch": "torch_exhaustive",
    "numpy": "numpy_exhaustive",
}

# n_probe, n_candidates, n_code_scored, n_rescored. After the first few cells, more cells add little: recall is limited
# by n_code_scored, and close to 1 by n_rescored. With n_code_scored = n_candidates the centroid stage keeps everything.
PROBES = [
    (4, 200, 48, 16),
    (8, 300, 64, 20),
    (8, 400, 96, 20),
    (8, 400, 128, 24),
    (16, 400, 192, 24),
    (16, 600, 256, 24),
    (16, 800, 320, 24),
    (16, 800, 384, 32),
    (16, 1200, 512, 32),
    (16, 1600, 768, 48),
    (32, 1600, 1024, 48),
    (32, 1600, 1400, 96),
    (64, 1600, 1600, 96),
    (24, 3200, 768, 48),
    (32, 3200, 512, 32),
    (32, 6400, 1536, 64),
    (48, 12800, 1536, 64),
    (64, 6400, 3072, 96),
    (64, 25600, 3072, 96),
    (16, 6400, 1024, 48),
    (24, 12800, 1024, 48),
    (24, 25600, 2048, 64),
]


def probes(level: str = "engine") -> list[Settings]:
    """The settings of plait's curve."""
    names = ("n_probe", "n_candidates", "n_code_scored", "n_rescored")
    return [{"level": level, **dict(zip(names, numbers, strict=True))} for numbers in PROBES]


EXACT: Settings = {"level": "exact"}
TWO_BIT = {"bits": 2, "keep_8bit": True}


def variants(targets: Sequence[str], *, quick: bool = False) -> list[Variant]:
    """All variants; two of plait are repeated for each named instruction set. With `quick`, slow-to-build indexes of
    other engines are written by rivals/residual_maker.py."""
    made = {"quick": True} if quick else {}
    return [
        *(
            Variant(f"plait {bits}-bit", "plait", {"bits": bits, "keep_8bit": False}, [*probes(), EXACT])
            for bits in (1, 2, 4)
        ),
        Variant("plait 2-bit + 8-bit", "plait", TWO_BIT, [*probes(), EXACT]),
        Variant("plait 2-bit + 8-bit, call", "plait", TWO_BIT, probes("call")),
        *(
            Variant(f"plait {name}, {target}", "plait", build, probes(), open={"target": target})
            for target in targets
            for name, build in (("2-bit + 8-bit", TWO_BIT), ("4-bit", {"bits": 4, "keep_8bit": False}))
        ),
        *(
            Variant(f"fast-plaid {nbits}-bit", "fast-plaid", {"nbits": nbits, **made}, PLAID, slow=True)
            for nbits in (4, 2)
        ),
        Variant("xtr-warp-rs 4-bit", "xtr-warp-rs", {"nbits": 4, **made}, WARP),
        Variant("faiss IVFPQ", "faiss", {}, [setting | {"n_rerank": 0} for setting in IVFPQ], slow=True),
        Variant(
            "faiss IVFPQ + float",
            "faiss",
            {},
            [setting | {"n_rerank": 100} for setting in IVFPQ],
            slow=True,
            beside=256,
        ),
        Variant("lancedb IVF_PQ", "lancedb", {}, LANCE, slow=True),
        Variant("qdrant-edge", "qdrant-edge", {"m": 0, "ef_construct": 100}, [{"exact": True}], slow=True),
        Variant(
            "qdrant-edge HNSW",
            "qdrant-edge",
            {"m": 16, "ef_construct": 100},
            [{"exact": False, "hnsw_ef": ef} for ef in (16, 64, 128, 256)],
            slow=True,
        ),
        Variant("torch, exhaustive", "torch", {}, [{}], slow=True),
        Variant("NumPy, exhaustive", "numpy", {}, [{}], slow=True),
    ]  # fmt: skip


PLAID: list[Settings] = [
    {"n_ivf_probe": n_probe, "n_full_scores": n_full}
    for n_probe, n_full in [(1, 64), (2, 256), (4, 512), (8, 1024), (8, 4096), (16, 4096), (32, 8192)]
]
# The library's default t_prime, which imputes the scores of unread vectors, suits the few cells of its default nprobe.
# With more cells a larger t_prime has more recall; values from 5,000 to 400,000 were tried.
WARP: list[Settings] = [
    {},
    *({"nprobe": n_probe} for n_probe in (1, 2, 4, 8, 16, 32)),
    *(
        {
            "nprobe": n_probe,
            "t_prime": t_prime,
            "bound": max(n_probe, 1024),
            "centroid_score_threshold": 0.0,
            "max_candidates": 10_000_000,
        }
        for t_prime, n_probes in [(20_000, (16, 32, 64)), (50_000, (128, 256, 512, 1024))]
        for n_probe in n_probes
    ),
]
IVFPQ: list[Settings] = [
    {"nprobe": n_probe, "n_tokens": n_tokens}
    for n_probe, n_tokens in [(4, 100), (8, 200), (16, 500), (32, 1000), (64, 2000)]
]
LANCE: list[Settings] = [
    {"nprobes": n_probes, "refine_factor": refine}
    for n_probes, refine in [(5, None), (20, None), (20, 5), (50, 5), (50, 20)]
]
