"""ConstBERT by training: a mixer that makes C vectors of every document, beside its twin with a vector a token."""

from __future__ import annotations

from typing import Any

from plait_reproduce.arms import trained
from plait_reproduce.claims.reading import Outcomes, points
from plait_reproduce.claims.seeds import DIFFERS, SEEDS, Trainings, apart, arms, curve
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, as_mean
from plait_reproduce.verdict import Check

SETS = trained.SETS
COUNTS = (4, 8, 16)
HALF = 16  # about half of a passage's vectors, as C = 32 is in the paper
FEW = 8  # what heuristics are compared at: a quarter
HERE, THERE = "here/nDCG@10", "there/nDCG@10"
WAYS = {"ward": "pooled by Ward's method", "segments": "means of segments", "first": "the first vectors"}
TWIN: dict[str, dict[str, Any]] = {"twin": {"objective": "maxsim"}}
MIXERS: dict[str, dict[str, Any]] = {f"C = {count}": {"objective": "maxsim", "fixed": count} for count in COUNTS}
MORE = DIFFERS + (
    "A passage has some 33 vectors, half of the paper's 68, so that C = 16 here is C = 32 there. The mixer mixes up to "
    "64 positions. No teacher: the labels alone. "
)


def _mixers(_tier: str) -> list[Arm]:
    return arms(trained.fixed, TWIN | MIXERS, SETS, pooled=None)


def _judge_counts(outcomes: Outcomes) -> Judgement:
    own, half = Trainings(outcomes), f"C = {HALF}"
    near = own.less((half, HERE), ("twin", HERE))
    rises = own.less((half, HERE), (f"C = {COUNTS[0]}", HERE))
    n_rows = outcomes["twin/0"].facts["rows here"]
    names = {"twin": f"a vector a token ({n_rows:.0f})", **{name: name for name in MIXERS}}
    return Judgement(
        f"C = {HALF}: {points(near)} points of nDCG@10 against a vector a token ({n_rows:.0f}); "
        f"C = {COUNTS[0]}: {points(own.less((f'C = {COUNTS[0]}', HERE), ('twin', HERE)))}",
        [
            Check(f"little is lost with half of the vectors: C = {HALF} - a vector a token", near, bar=-0.02,
                  unit="points"),
            Check(f"more vectors are better: C = {HALF} - C = {COUNTS[0]}", rises, unit="points"),
        ],
        [own.table("Quality by vectors of a document", names, {HERE: "nDCG@10", "here/R@100": "R@100"})],
        [Figure(title="Quality by vectors of a document", x_label="C", y_label="nDCG@10",
                lines=[curve("a mixer", [own.mean(name, HERE) for name in MIXERS], COUNTS),
                       own.line("a vector a token", "twin", [HERE] * 2, [COUNTS[0], COUNTS[-1]])])],
    )  # fmt: skip


def _judge_elsewhere(outcomes: Outcomes) -> Judgement:
    own, half = Trainings(outcomes), f"C = {HALF}"
    lost_there, lost_here = (own.less(("twin", measure), (half, measure)) for measure in (THERE, HERE))
    names = {"twin": "a vector a token", **{name: name for name in MIXERS}}
    return Judgement(
        f"C = {HALF} loses {100 * lost_there.value:.1f} points on CLIMATE-FEVER, which it did not learn for, and "
        f"{100 * lost_here.value:.1f} on SQuAD",
        [
            Check(f"something is lost elsewhere: a vector a token - C = {HALF}, CLIMATE-FEVER", lost_there,
                  unit="points"),
            Check("more than where it learned: that - the same on SQuAD", apart(lost_there, lost_here), unit="points"),
        ],
        [own.table("nDCG@10", names, {HERE: "SQuAD", THERE: "CLIMATE-FEVER"})],
        [Figure(title="Where it learned, and elsewhere", y_label="nDCG@10", groups=["SQuAD", "CLIMATE-FEVER"],
                bars={label: [as_mean(own.mean(name, measure)) for measure in (HERE, THERE)]
                      for name, label in names.items()})],
    )  # fmt: skip


def _heuristics(_tier: str) -> list[Arm]:
    pooled = [
        Arm(f"{way}/{seed}", trained.fixed, {"recipe": TWIN["twin"], "seed": seed, "pooled": [way, FEW]}, SETS)
        for way in WAYS
        for seed in SEEDS
    ]
    return pooled + arms(trained.fixed, {**TWIN, "mixer": MIXERS[f"C = {FEW}"]}, SETS, pooled=None)


def _judge_heuristics(outcomes: Outcomes) -> Judgement:
    own = Trainings(outcomes)
    gains = {way: own.less(("mixer", HERE), (way, HERE)) for way in WAYS}
    names = {"twin": "all vectors", "mixer": "learned mixer", **WAYS}
    return Judgement(
        f"a learned mixer of {FEW} vectors: "
        + ", ".join(f"{points(gain)} against {WAYS[way]}" for way, gain in gains.items()),
        [Check(f"learned - {WAYS[way]}", gain, unit="points") for way, gain in gains.items()],
        [own.table(f"nDCG@10 with {FEW} vectors", names, {HERE: "SQuAD", THERE: "CLIMATE-FEVER"})],
        [Figure(title=f"{FEW} vectors of a document, learned and not", y_label="nDCG@10",
                groups=["SQuAD", "CLIMATE-FEVER"],
                bars={label: [as_mean(own.mean(name, measure)) for measure in (HERE, THERE)]
                      for name, label in names.items()})],
        ["Heuristics reduce the vectors of the twin after its training; Ward's pooling is what plait's indexes offer."],
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="K1", family="constbert", extra="train",
        claim="A fixed number of learned vectors a document comes near to a vector a token, the nearer the more.",
        paper="MRR@10 39.99 for ColBERT; 37.84, 39.04, 39.15, 39.53 at C = 16, 32, 64, 128",
        sets=SETS, measure="nDCG@10 of exact MaxSim; three seeds of each",
        expects="rises with C and saturates; half of the vectors within one or two points", differs=MORE,
        minutes=(4, 30), arms=_mixers, judge=_judge_counts,
    ),
    Experiment(
        id="K4", family="constbert", extra="train",
        claim="On texts that it did not learn for, a fixed number of vectors loses more than where it learned.",
        paper="mean nDCG@10 of 13 BEIR sets 0.485 for ColBERT, 0.468 at C = 32, 0.472 at C = 64",
        sets=SETS, measure="nDCG@10 of exact MaxSim on another set; three seeds of each",
        expects="a loss of 1 to 4 points, larger than in domain", differs=MORE, minutes=(4, 30),
        arms=_mixers, judge=_judge_elsewhere,
    ),
    Experiment(
        id="K6", family="constbert", extra="train",
        claim="Learned mixing beats ways of pooling that nothing was learned for.",
        paper="implied: the paper compares with no heuristic",
        sets=SETS, measure=f"nDCG@10 of exact MaxSim with {FEW} vectors a document; three seeds of each",
        expects="learned, then clustering, then segments, then the first vectors; clustering may tie", differs=MORE,
        minutes=(3, 20), arms=_heuristics, judge=_judge_heuristics,
    ),
)  # fmt: skip
