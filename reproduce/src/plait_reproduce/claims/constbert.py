"""ConstBERT: a fixed number of vectors per document, by pooling and by a trained mixer."""

from __future__ import annotations

from typing import Any

from plait_reproduce.arms import multivector, trained
from plait_reproduce.claims.reading import (
    DIFFERS,
    SEEDS,
    Across,
    Outcomes,
    Trainings,
    arms,
    curve,
    difference_of_independent,
    points,
)
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Line, Table, as_mean
from plait_reproduce.verdict import Check, Estimate

SETS = ("scifact", "clapnq", "climate")
LONG = ("scifact", "clapnq")
COUNTS = (8, 16, 32, 64, 128)
C = 32
POOLED = "Vectors are pooled (Ward's method) from those of a general encoder, not mixed by a trained layer. "


def _size_arms(_tier: str) -> list[Arm]:
    return [
        Arm(f"{side} of {name}", multivector.sizes, {"set": name, "side": side, "fixed": list(COUNTS)}, (name,))
        for name in SETS
        for side in ("documents", "queries")
    ]


def _judge_sizes(outcomes: Outcomes) -> Judgement:
    saved = {name: outcome.facts["ragged"] / outcome.facts[f"fixed {C}"] for name, outcome in outcomes.items()}
    long, short = saved["documents of scifact"], saved["queries of climate"]
    rows = [
        [name, f"{outcome.facts['mean vectors']:.1f}", f"{outcome.facts['ragged'] / 1e6:.2f}",
         *(f"{outcome.facts['ragged'] / outcome.facts[f'fixed {n}']:.2f}x" for n in COUNTS)]
        for name, outcome in outcomes.items()
    ]  # fmt: skip
    lines = [
        Line(name, list(COUNTS), [outcome.facts[f"fixed {n}"] / outcome.facts["ragged"] for n in COUNTS])
        for name, outcome in outcomes.items()
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
    arms = [Arm(f"rerank/{name}", multivector.reranked, {"set": name, "fixed": C}, (name,)) for name in LONG]
    return arms + [Arm(f"full/{name}", multivector.exact, {"set": name}, (name,)) for name in LONG]


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
        Arm(f"{rows} {way}/{name}", multivector.by_search, {**settings, "set": name, "fixed": count}, (name,))
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


TRAINED_SETS = trained.SETS
TRAINED_COUNTS = (4, 8, 16)
HALF = 16  # about half of a passage's vectors, like C = 32 in the paper
FEW = 8  # about a quarter; the heuristics are compared at this number
HERE, THERE = "here/nDCG@10", "there/nDCG@10"
WAYS = {"ward": "pooled by Ward's method", "segments": "means of segments", "first": "the first vectors"}
TWIN: dict[str, dict[str, Any]] = {"twin": {"objective": "maxsim"}}
MIXERS: dict[str, dict[str, Any]] = {
    f"C = {count}": {"objective": "maxsim", "fixed": count} for count in TRAINED_COUNTS
}
MORE = DIFFERS + (
    "A passage has some 33 vectors, half of the paper's 68, so that C = 16 here is C = 32 there. The mixer mixes up to "
    "64 positions. No teacher: the labels alone. "
)


def _mixers(_tier: str) -> list[Arm]:
    return arms(trained.fixed, TWIN | MIXERS, TRAINED_SETS, pooled=None)


def _judge_counts(outcomes: Outcomes) -> Judgement:
    trainings, half = Trainings(outcomes), f"C = {HALF}"
    near = trainings.less((half, HERE), ("twin", HERE))
    rises = trainings.less((half, HERE), (f"C = {TRAINED_COUNTS[0]}", HERE))
    n_rows = outcomes["twin/0"].facts["rows here"]
    names = {"twin": f"a vector a token ({n_rows:.0f})", **{name: name for name in MIXERS}}
    return Judgement(
        f"C = {HALF}: {points(near)} points of nDCG@10 against a vector a token ({n_rows:.0f}); "
        f"C = {TRAINED_COUNTS[0]}: {points(trainings.less((f'C = {TRAINED_COUNTS[0]}', HERE), ('twin', HERE)))}",
        [
            Check(
                f"little is lost with half of the vectors: C = {HALF} - a vector a token",
                near,
                bar=-0.02,
                unit="points",
            ),
            Check(f"more vectors are better: C = {HALF} - C = {TRAINED_COUNTS[0]}", rises, unit="points"),
        ],
        [trainings.table("Quality by vectors of a document", names, {HERE: "nDCG@10", "here/R@100": "R@100"})],
        [
            Figure(
                title="Quality by vectors of a document",
                x_label="C",
                y_label="nDCG@10",
                lines=[
                    curve("a mixer", [trainings.mean(name, HERE) for name in MIXERS], TRAINED_COUNTS),
                    trainings.line("a vector a token", "twin", [HERE] * 2, [TRAINED_COUNTS[0], TRAINED_COUNTS[-1]]),
                ],
            )
        ],
    )


def _judge_elsewhere(outcomes: Outcomes) -> Judgement:
    trainings, half = Trainings(outcomes), f"C = {HALF}"
    lost_there, lost_here = (trainings.less(("twin", measure), (half, measure)) for measure in (THERE, HERE))
    names = {"twin": "a vector a token", **{name: name for name in MIXERS}}
    return Judgement(
        f"C = {HALF} loses {100 * lost_there.value:.1f} points on CLIMATE-FEVER, which it did not learn for, and "
        f"{100 * lost_here.value:.1f} on SQuAD",
        [
            Check(f"something is lost elsewhere: a vector a token - C = {HALF}, CLIMATE-FEVER", lost_there,
                  unit="points"),
            Check("more than where it learned: that - the same on SQuAD",
                  difference_of_independent(lost_there, lost_here), unit="points"),
        ],
        [trainings.table("nDCG@10", names, {HERE: "SQuAD", THERE: "CLIMATE-FEVER"})],
        [Figure(title="Where it learned, and elsewhere", y_label="nDCG@10", groups=["SQuAD", "CLIMATE-FEVER"],
                bars={label: [as_mean(trainings.mean(name, measure)) for measure in (HERE, THERE)]
                      for name, label in names.items()})],
    )  # fmt: skip


def _heuristics(_tier: str) -> list[Arm]:
    pooled = [
        Arm(f"{way}/{seed}", trained.fixed, {"recipe": TWIN["twin"], "seed": seed, "pooled": [way, FEW]}, TRAINED_SETS)
        for way in WAYS
        for seed in SEEDS
    ]
    return pooled + arms(trained.fixed, {**TWIN, "mixer": MIXERS[f"C = {FEW}"]}, TRAINED_SETS, pooled=None)


def _judge_heuristics(outcomes: Outcomes) -> Judgement:
    trainings = Trainings(outcomes)
    gains = {way: trainings.less(("mixer", HERE), (way, HERE)) for way in WAYS}
    names = {"twin": "all vectors", "mixer": "learned mixer", **WAYS}
    return Judgement(
        f"a learned mixer of {FEW} vectors: "
        + ", ".join(f"{points(gain)} against {WAYS[way]}" for way, gain in gains.items()),
        [Check(f"learned - {WAYS[way]}", gain, unit="points") for way, gain in gains.items()],
        [trainings.table(f"nDCG@10 with {FEW} vectors", names, {HERE: "SQuAD", THERE: "CLIMATE-FEVER"})],
        [Figure(title=f"{FEW} vectors of a document, learned and not", y_label="nDCG@10",
                groups=["SQuAD", "CLIMATE-FEVER"],
                bars={label: [as_mean(trainings.mean(name, measure)) for measure in (HERE, THERE)]
                      for name, label in names.items()})],
        ["Heuristics reduce the vectors of the twin after its training; Ward's pooling is what plait's indexes offer."],
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="K3", family="constbert",
        claim="With C vectors per document the index shrinks by mean vectors over C, and grows where texts are short.",
        paper="22 GB against 5, 11, 20, 40 GB at C = 16, 32, 64, 128; Quora doubles, 0.3 to 0.6 GB",
        sets=SETS, measure="bytes of 2-bit codes", expects="the ratio is mean vectors / C; below 1 on short texts",
        differs="Documents are cut at 180 tokens. Short texts are the queries of each set, taken as items.",
        minutes=(1, 2), arms=_size_arms, judge=_judge_sizes,
    ),
    Experiment(
        id="K5", family="constbert",
        claim="Reranking BM25 with few fixed vectors is nearly as good as full search, and faster.",
        paper="MRR@10 38.75 to 39.52 in 4.95 ms, against 51.25 ms for PLAID with ColBERT",
        sets=LONG, measure="nDCG@10 of BM25's best 100 reranked; processor time of reranking alone",
        expects="near to exhaustive MaxSim; 1.3 to 3x faster than with ragged vectors",
        differs=POOLED + "The first stage is BM25, not SPLADE. Times are of scoring float16 rows in memory.",
        minutes=(1, 4), arms=_rerank_arms, judge=_judge_rerank,
    ),
    Experiment(
        id="K8", family="constbert",
        claim="PLAID suits fixed vectors badly: it loses more quality with them than with one vector per token.",
        paper="a reproduction has MRR@10 38.99 with exact MaxSim and 31.09 with PLAID (1 bit)",
        sets=LONG, measure="nDCG@10 lost by PLAID at nprobe 1, against exact MaxSim of the same vectors",
        expects="a larger loss for fixed vectors at equal nprobe",
        differs=POOLED + "2 bits rather than 1. On sets of 600 to 1,500 passages PLAID's candidates are many of all.",
        minutes=(1, 5), arms=_plaid_arms, judge=_judge_plaid,
    ),
    Experiment(
        id="K1", family="constbert", extra="train",
        claim="A fixed number of learned vectors per document approaches one vector per token as it grows.",
        paper="MRR@10 39.99 for ColBERT; 37.84, 39.04, 39.15, 39.53 at C = 16, 32, 64, 128",
        sets=TRAINED_SETS, measure="nDCG@10 of exact MaxSim; three seeds of each",
        expects="rises with C and saturates; half of the vectors within one or two points", differs=MORE,
        minutes=(4, 30), arms=_mixers, judge=_judge_counts,
    ),
    Experiment(
        id="K4", family="constbert", extra="train",
        claim="Out of domain, a fixed number of vectors loses more than in domain.",
        paper="mean nDCG@10 of 13 BEIR sets 0.485 for ColBERT, 0.468 at C = 32, 0.472 at C = 64",
        sets=TRAINED_SETS, measure="nDCG@10 of exact MaxSim on another set; three seeds of each",
        expects="a loss of 1 to 4 points, larger than in domain", differs=MORE, minutes=(4, 30),
        arms=_mixers, judge=_judge_elsewhere,
    ),
    Experiment(
        id="K6", family="constbert", extra="train",
        claim="Learned mixing beats pooling without training.",
        paper="implied: the paper compares with no heuristic",
        sets=TRAINED_SETS, measure=f"nDCG@10 of exact MaxSim with {FEW} vectors a document; three seeds of each",
        expects="learned, then clustering, then segments, then the first vectors; clustering may tie", differs=MORE,
        minutes=(3, 20), arms=_heuristics, judge=_judge_heuristics,
    ),
)  # fmt: skip
