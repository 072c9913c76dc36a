"""ConstBERT: a fixed number of vectors for every document, here by pooling rather than by a trained mixer."""

from __future__ import annotations

from typing import Any

from plait_reproduce.arms import fixed, multi
from plait_reproduce.claims.reading import Across, Outcomes, points
from plait_reproduce.estimates import Estimate
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Line, Table
from plait_reproduce.verdict import Check

SETS = ("scifact", "clapnq", "climate")
LONG = ("scifact", "clapnq")
COUNTS = (8, 16, 32, 64, 128)
C = 32
POOLED = "Vectors are pooled (Ward's method) from those of a general encoder, not mixed by a trained layer. "


def _size_arms(_tier: str) -> list[Arm]:
    return [
        Arm(f"{side} of {name}", fixed.sizes, {"set": name, "side": side, "fixed": list(COUNTS)}, (name,))
        for name in SETS
        for side in ("documents", "queries")
    ]


def _judge_sizes(outcomes: Outcomes) -> Judgement:
    saved = {name: own.facts["ragged"] / own.facts[f"fixed {C}"] for name, own in outcomes.items()}
    long, short = saved["documents of scifact"], saved["queries of climate"]
    rows = [
        [name, f"{own.facts['mean vectors']:.1f}", f"{own.facts['ragged'] / 1e6:.2f}",
         *(f"{own.facts['ragged'] / own.facts[f'fixed {n}']:.2f}x" for n in COUNTS)]
        for name, own in outcomes.items()
    ]  # fmt: skip
    lines = [
        Line(name, list(COUNTS), [own.facts[f"fixed {n}"] / own.facts["ragged"] for n in COUNTS])
        for name, own in outcomes.items()
    ]
    return Judgement(
        f"C = 32 makes SciFact's abstracts {long:.1f}x smaller, and short texts (claims of CLIMATE-FEVER as items) "
        f"{1 / short:.1f}x larger",
        [
            Check("long texts shrink: ragged / C = 32, SciFact's documents", Estimate.counted(long), bar=2.0, weak=1.0,
                  unit="x"),
            Check("short texts grow: C = 32 / ragged, CLIMATE-FEVER's claims", Estimate.counted(1 / short), bar=1.0,
                  unit="x"),
        ],
        [Table("Bytes at 2 bits: ragged over fixed, by C", ["items", "vectors each", "ragged, MB",
                                                           *(f"C = {n}" for n in COUNTS)], rows)],
        [Figure(title="Index size with C vectors a text, as a share of the ragged index", x_label="C",
                y_label="bytes, ragged = 1", log_x=True, lines=lines)],
        ["The ratio is the mean number of vectors over C, and nothing else."],
    )  # fmt: skip


def _rerank_arms(_tier: str) -> list[Arm]:
    arms = [Arm(f"rerank/{name}", fixed.reranked, {"set": name, "fixed": C}, (name,)) for name in LONG]
    return arms + [Arm(f"full/{name}", multi.exact, {"set": name}, (name,)) for name in LONG]


def _judge_rerank(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, LONG)
    gain = across.less_within("rerank", "fixed/nDCG@10", "bm25/nDCG@10")
    near = across.between(("rerank", "fixed/nDCG@10"), ("full", "nDCG@10"))
    faster = across.times_within("rerank", "ragged/seconds", "fixed/seconds")
    bars = {
        "BM25": across.means("rerank", "bm25/nDCG@10"),
        "reranked, C = 32": across.means("rerank", "fixed/nDCG@10"),
        "reranked, all vectors": across.means("rerank", "ragged/nDCG@10"),
        "exhaustive MaxSim": across.means("full"),
    }
    return Judgement(
        f"reranking BM25 with 32 vectors: {points(gain)} points of nDCG@10, {points(near)} against exhaustive MaxSim; "
        f"{faster.value:.1f}x faster than with all vectors",
        [
            Check("reranking helps: 32 vectors - BM25", gain, unit="points"),
            Check("it comes near to full search: 32 vectors - exhaustive MaxSim", near, bar=-0.02, unit="points"),
            Check("fixed rows are faster: time of ragged / fixed", faster, bar=1.3, weak=1.0, unit="x"),
        ],
        [across.table_of("nDCG@10", "rerank", {"bm25/nDCG@10": "BM25", "fixed/nDCG@10": "reranked, C = 32",
                                               "ragged/nDCG@10": "reranked, all vectors"})],
        [Figure(title="BM25's best hundred, reranked by MaxSim", y_label="nDCG@10", groups=LONG, bars=bars)],
    )  # fmt: skip


def _plaid_arms(_tier: str) -> list[Arm]:
    ways: dict[str, dict[str, Any]] = {"exact": {"method": None}}
    ways["all codes"] = {"method": "exhaustive", "bits": 2, "k": 10}
    for n_probe in (1, 2, 4):
        ways[f"plaid {n_probe}"] = {"method": "plaid", "bits": 2, "k": 10, "options": {"n_probe": n_probe}}
    return [
        Arm(f"{rows} {way}/{name}", fixed.by_search, {**settings, "set": name, "fixed": count}, (name,))
        for name in LONG
        for rows, count in (("ragged", None), ("fixed", C))
        for way, settings in ways.items()
    ]


def _judge_plaid(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, LONG)
    lost = {rows: across.less(f"{rows} exact", f"{rows} plaid 1") for rows in ("ragged", "fixed")}
    more = across.less_of_differences(("fixed exact", "fixed plaid 1"), ("ragged exact", "ragged plaid 1"))
    probes = (1, 2, 4)
    return Judgement(
        f"PLAID (nprobe 1) loses {100 * lost['fixed'].value:.1f} points of nDCG@10 with 32 pooled vectors, "
        f"{100 * lost['ragged'].value:.1f} with all",
        [Check("PLAID loses more with fixed vectors: loss fixed - loss ragged, nprobe 1", more, unit="points")],
        [across.table("nDCG@10", {f"{rows} {way}": f"{rows}, {way}" for rows in ("ragged", "fixed")
                                  for way in ("exact", "all codes", "plaid 1", "plaid 2", "plaid 4")})],
        [Figure(title="PLAID by cells probed", x_label="cells probed for a query row (nprobe)", y_label="nDCG@10",
                lines=[across.line(rows, [f"{rows} plaid {n}" for n in probes], probes)
                       for rows in ("ragged", "fixed")])],
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="K3", family="constbert",
        claim="With C vectors a document the index shrinks by mean vectors over C, and grows where texts are short.",
        paper="22 GB against 5, 11, 20, 40 GB at C = 16, 32, 64, 128; Quora doubles, 0.3 to 0.6 GB",
        sets=SETS, measure="bytes of 2-bit codes", expects="the ratio is mean vectors / C; below 1 on short texts",
        differs="Documents are cut at 180 tokens. Short texts are the queries of each set, taken as items.",
        minutes=(1, 2), arms=_size_arms, judge=_judge_sizes,
    ),
    Experiment(
        id="K5", family="constbert",
        claim="Reranking a first stage of words with few fixed vectors is nearly as good as full search, and faster.",
        paper="MRR@10 38.75 to 39.52 in 4.95 ms, against 51.25 ms for PLAID with ColBERT",
        sets=LONG, measure="nDCG@10 of BM25's best 100 reranked; processor time of reranking alone",
        expects="near to exhaustive MaxSim; 1.3 to 3x faster than with ragged vectors",
        differs=POOLED + "The first stage is BM25, not SPLADE. Times are of scoring float16 rows in memory.",
        minutes=(1, 4), arms=_rerank_arms, judge=_judge_rerank,
    ),
    Experiment(
        id="K8", family="constbert",
        claim="PLAID suits fixed vectors badly: it loses more quality with them than with a vector a token.",
        paper="a reproduction has MRR@10 38.99 with exact MaxSim and 31.09 with PLAID (1 bit)",
        sets=LONG, measure="nDCG@10 lost by PLAID at nprobe 1, against exact MaxSim of the same vectors",
        expects="a larger loss for fixed vectors at equal nprobe",
        differs=POOLED + "2 bits rather than 1. On sets of 600 to 1,500 passages PLAID's candidates are many of all.",
        minutes=(1, 5), arms=_plaid_arms, judge=_judge_plaid,
    ),
)  # fmt: skip
