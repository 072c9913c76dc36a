"""ColBERTv2 by training: a teacher's scores over retrieved lists, beside triples with BM25's negatives."""

from __future__ import annotations

from plait.reproduce.arms import trained
from plait.reproduce.claims.reading import Outcomes, points
from plait.reproduce.claims.seeds import DIFFERS, Trainings, arms
from plait.reproduce.experiment import Arm, Experiment, Figure, Judgement, as_mean
from plait.reproduce.verdict import Check

SETS = trained.SETS
HERE, THERE, RECALL = "here/nDCG@10", "there/nDCG@10", "here/R@100"
LABELS = {"triples": "triples, BM25's negatives", "lists": "lists of 8 with a teacher's scores"}


def _arms(_tier: str) -> list[Arm]:
    return arms(trained.fixed, {name: {"objective": name} for name in LABELS}, SETS, pooled=None)


def _judge(outcomes: Outcomes) -> Judgement:
    own = Trainings(outcomes)
    here, there, recall = (own.less(("lists", name), ("triples", name)) for name in (HERE, THERE, RECALL))
    return Judgement(
        f"a teacher's lists against triples: {points(here)} points of nDCG@10 and {points(recall)} of R@100 on SQuAD, "
        f"{points(there)} of nDCG@10 on CLIMATE-FEVER",
        [
            Check("nDCG@10 where it learned: lists - triples", here, unit="points"),
            Check("R@100 where it learned: lists - triples", recall, unit="points"),
            Check("nDCG@10 elsewhere is not worse: lists - triples", there, bar=-0.01, unit="points"),
        ],
        [own.table("By what was learned from", LABELS, {HERE: "nDCG@10, SQuAD", RECALL: "R@100, SQuAD",
                                                        THERE: "nDCG@10, CLIMATE-FEVER"})],
        [Figure(title="Learning from triples, and from a teacher", y_label="nDCG@10",
                groups=["SQuAD", "CLIMATE-FEVER"],
                bars={label: [as_mean(own.mean(name, measure)) for measure in (HERE, THERE)]
                      for name, label in LABELS.items()})],
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="C1", family="colbert", extra="train",
        claim="Learning a teacher's scores over hard, retrieved lists beats triples with BM25's negatives.",
        paper="MRR@10 36.0 to 39.7, R@50 82.9 to 86.8, R@1k 96.8 to 98.4",
        sets=SETS, measure="nDCG@10 and R@100 of exact MaxSim; three seeds of both",
        expects="2 to 6 points where it learned, little or nothing elsewhere",
        differs=DIFFERS + "The teacher is the whole encoder, its dense and multi strand together, not a cross-encoder; "
        "the student sees the states of its lower half. Lists have 8 passages of the best 50, not 64 of 500. Both arms "
        "see 32 passages a step: 16 triples, or 4 lists.",
        minutes=(3, 20), arms=_arms, judge=_judge,
    ),
)  # fmt: skip
