"""Two heads of cross-encoders by training, [CLS] and [EMB], and their score matrices."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from plait_reproduce.arms import cross_encoder
from plait_reproduce.arms.cross_encoder import BUDGET, K
from plait_reproduce.claims.reading import SEEDS, Outcomes, Trainings, points
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Line, Outcome, Table
from plait_reproduce.verdict import Check, Estimate

HEADS = {"cls": "[CLS]", "emb": "[EMB]"}
RANKS = {"rank at 0.01": "rank at 1e-2", "rank at 0.0012": "rank at 1.2e-3", "energy": "directions of 99% energy"}
DIFFERS = (
    "The cross-encoders are two narrow joint layers over the last states of a frozen general encoder, not a whole "
    "BERT. They learn from 1,000 questions of SQuAD in 240 steps of 16 with three negatives each, not 63; [EMB] reads "
    "the last token of each text where the papers have markers. 300 questions by 600 sentences are scored. So little "
    "teaching gives poor rerankers, behind BM25's own order, and matrices that are smoother than the paper's. "
)


def _arms(_tier: str) -> list[Arm]:
    return [
        Arm(f"{head}/{seed}", cross_encoder.heads, {"head": head, "seed": seed}, cross_encoder.SETS)
        for head in HEADS
        for seed in SEEDS
    ]


def _of_seeds(outcomes: Outcomes, head: str, fact: str) -> list[float]:
    return [outcomes[f"{head}/{seed}"].facts[fact] for seed in SEEDS]


def _over_seeds(values: list[float]) -> Estimate:
    """The mean over seeds, with their range as the interval: a matrix has one rank, not one per query."""
    return Estimate(fmean(values), min(values), max(values), len(values))


def _table(outcomes: Outcomes, title: str, facts: dict[str, str]) -> Table:
    rows = [
        [label, *(f"{fmean(_of_seeds(outcomes, head, fact)):.1f}" for fact in facts)] for head, label in HEADS.items()
    ]
    return Table(f"{title}, means of {len(SEEDS)} seeds", ["", *facts.values()], rows)


def _judge_rank(outcomes: Outcomes) -> Judgement:
    trainings = Trainings(outcomes)
    times = {
        fact: _over_seeds([cls / max(emb, 1.0) for cls, emb in
                           zip(_of_seeds(outcomes, "cls", fact), _of_seeds(outcomes, "emb", fact), strict=True)])
        for fact in RANKS
    }  # fmt: skip
    gain = trainings.less(("emb", "anncur"), ("cls", "anncur"))
    return Judgement(
        f"directions of 99% energy: {fmean(_of_seeds(outcomes, 'cls', 'energy')):.0f} of [CLS], "
        f"{fmean(_of_seeds(outcomes, 'emb', 'energy')):.0f} of [EMB]; ANNCUR's recall on [EMB] {points(gain)} points",
        [
            *(Check(f"{label}: [CLS] over [EMB]", times[fact], bar=1.5, weak=1.0) for fact, label in RANKS.items()),
            Check(f"ANNCUR's recall at k = {K}, B = {BUDGET}: [EMB] - [CLS]", gain, unit="points"),
        ],
        [_table(outcomes, "Directions of the score matrix", RANKS),
         trainings.table("Recall of the exact best", HEADS, {"anncur": f"ANNCUR, k = {K}, B = {BUDGET}"})],
        [Figure(title="Singular values of the score matrix, the largest as one (seed 0)", x_label="singular value",
                y_label="share of the largest", log_x=True, log_y=True,
                lines=[Line(label, list(range(1, len(outcomes[f"{head}/0"].series["spectrum"]) + 1)),
                            outcomes[f"{head}/0"].series["spectrum"]) for head, label in HEADS.items()])],
    )  # fmt: skip


def _judge_accuracy(outcomes: Outcomes) -> Judgement:
    trainings = Trainings(outcomes)
    less = trainings.less(("emb", "RR@10"), ("cls", "RR@10"))
    more = Estimate(-less.value, -less.high, -less.low, less.n)
    means = {head: trainings.mean(head, "RR@10").value for head in HEADS}
    return Judgement(
        f"RR@10 of BM25's best {cross_encoder.DEPTH}: {means['cls']:.3f} by [CLS], {means['emb']:.3f} by [EMB] "
        f"({trainings.mean('cls', 'BM25').value:.3f} by BM25)",
        [
            Check("[EMB] no more than 2 points below [CLS]", less, bar=-0.02, unit="points"),
            Check("[CLS] no more than 2 points below [EMB]", more, bar=-0.02, unit="points"),
        ],
        [trainings.table("RR@10", HEADS, {"RR@10": f"BM25's best {cross_encoder.DEPTH}, reranked"})],
    )


def _density(label: str, outcome: Outcome) -> Line:
    """The density where it is positive: zero has no logarithm."""
    points = [(x, y) for x, y in zip(outcome.series["scores"], outcome.series["density"], strict=True) if y > 0]
    return Line(label, [x for x, _ in points], [y for _, y in points])


def _judge_shape(outcomes: Outcomes) -> Judgement:
    facts = {"skewness": "skewness", "kurtosis": "kurtosis"}
    pairs_of = {
        fact: list(zip(_of_seeds(outcomes, "cls", fact), _of_seeds(outcomes, "emb", fact), strict=True))
        for fact in facts
    }
    peaked = _over_seeds([cls - emb for cls, emb in pairs_of["kurtosis"]])
    skewed = _over_seeds([abs(cls) - abs(emb) for cls, emb in pairs_of["skewness"]])
    means = {head: fmean(_of_seeds(outcomes, head, "kurtosis")) for head in HEADS}
    return Judgement(
        f"kurtosis {means['cls']:.1f} of [CLS], {means['emb']:.1f} of [EMB] (0 is that of a normal distribution)",
        [
            Check("kurtosis: [CLS] - [EMB]", peaked),
            Check("size of the skewness: [CLS] - [EMB]", skewed),
        ],
        [_table(outcomes, "Shape of all scores", facts)],
        [Figure(title="Scores of all pairs, in standard deviations from their mean (seed 0)", x_label="score",
                y_label="density", log_y=True,
                lines=[_density(label, outcomes[f"{head}/0"]) for head, label in HEADS.items()])],
    )  # fmt: skip


def _experiment(
    id: str, claim: str, judge: Callable[[Outcomes], Judgement], *, paper: str, measure: str, expects: str, range_: str
) -> Experiment:
    """All three claims use the same models."""
    return Experiment(
        id=id, family="anncur", claim=claim, paper=paper, sets=cross_encoder.SETS, measure=measure, expects=expects,
        differs=DIFFERS + range_, minutes=(3, 12), arms=_arms, judge=judge, extra="train",
    )  # fmt: skip


EXPERIMENTS = (
    _experiment(
        "A2",
        "The score matrix of an [EMB] cross-encoder has a lower rank than that of a [CLS] one, and ANNCUR finds more "
        "on it.",
        _judge_rank,
        paper="rank 45 against 315",
        measure="numerical rank at fixed thresholds, 99% of the energy, recall of ANNCUR",
        expects="1.5 to 4 times fewer directions, higher recall",
        range_="Intervals of ranks are the range over seeds.",
    ),
    _experiment(
        "A3",
        "An [EMB] cross-encoder is as accurate as a [CLS] one.",
        _judge_accuracy,
        paper="79.5 against 80.1 on dev",
        measure="RR@10 of BM25's best 30, reranked",
        expects="within 2 points",
        range_="",
    ),
    _experiment(
        "A4",
        "Scores of [CLS] are heavily skewed; those of [EMB] are smoother.",
        _judge_shape,
        paper="histograms only",
        measure="skewness and kurtosis of all scores",
        expects="kurtosis lower for [EMB]",
        range_="Intervals are the range over seeds.",
    ),
)
