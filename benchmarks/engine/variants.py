"""What is compared: each engine as it can be built, with the settings that its curve is made of.

Settings go from fast to thorough along the engine's own knobs. Those of other engines span from below their defaults
to where more of the same brings nothing; where a library chooses for itself, that choice is one of the points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """One curve. Those with the same engine and build share an index."""

    name: str
    engine: str  # a file of rivals/
    build: Mapping[str, Any]
    sweep: Sequence[Settings]
    slow: bool = False  # asked fewer queries
    open: Mapping[str, Any] | None = None  # options of opening that are not of the build
    beside: int = 0  # bytes a vector that a search reads and the index does not hold

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

# n_probe, n_candidates, n_code_scored, n_rescored. More cells a row bring little once the first few were read: what limits recall is
# how many items get their codes read, and close to 1 how many get their fine codes read. Where n_code_scored is n_candidates,
# what many cells found goes to its codes at once.
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
    """plait's curve."""
    names = ("n_probe", "n_candidates", "n_code_scored", "n_rescored")
    return [{"level": level, **dict(zip(names, numbers, strict=True))} for numbers in PROBES]


EXACT: Settings = {"level": "exact"}


def variants(targets: Sequence[str], *, quick: bool = False) -> list[Variant]:
    """All of them; two of plait's once more for each instruction set that is named. With `quick`, the indexes that
    take others hours to build are made by rivals/quick.py."""
    made = {"quick": True} if quick else {}
    return [
        *(
            Variant(f"plait {bits}-bit", "plait", {"bits": bits, "keep_8bit": False}, [*probes(), EXACT])
            for bits in (1, 2, 4)
        ),
        Variant("plait 2-bit + fine", "plait", {"bits": 2, "keep_8bit": True}, [*probes(), EXACT]),
        Variant("plait 2-bit + fine, call", "plait", {"bits": 2, "keep_8bit": True}, probes("call")),
        *(
            Variant(f"plait {name}, {target}", "plait", build, probes(), open={"target": target})
            for target in targets
            for name, build in (("2-bit + fine", {"bits": 2, "keep_8bit": True}), ("4-bit", {"bits": 4, "keep_8bit": False}))
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
# Left to itself the library has a t_prime, from which it guesses what was not read, for the few cells that it would
# choose. With more cells a larger one finds more; from 5,000 to 400,000 were tried.
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
