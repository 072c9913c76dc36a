"""ColBERTv2 by training: a teacher's scores over retrieved lists, beside triples with BM25's negatives; and queries
that are filled up with [MASK]."""

from __future__ import annotations

from typing import Any

from plait_reproduce.arms import trained
from plait_reproduce.claims.reading import Outcomes, points
from plait_reproduce.claims.seeds import DIFFERS, Trainings, arms
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Table, as_mean
from plait_reproduce.verdict import Check

SETS = trained.SETS
MASK_SETS = ("squad-train", "squad-test")
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


FILLED = 32
ASKED = {
    "with/own": f"trained and asked with {FILLED} rows",
    "with/bare": "trained so, asked with own tokens",
    "without/own": "trained and asked with own tokens",
}


def _mask_arms(_tier: str) -> list[Arm]:
    recipes: dict[str, dict[str, Any]] = {"with": {"objective": "maxsim", "masks": FILLED}}
    return arms(trained.masked, {**recipes, "without": {"objective": "maxsim"}}, MASK_SETS)


def _judge_masks(outcomes: Outcomes) -> Judgement:
    own, name = Trainings(outcomes), "nDCG@10"
    same = own.less(("with", f"own/{name}"), ("with", f"bare/{name}"))
    anew = own.less(("with", f"own/{name}"), ("without", f"own/{name}"))
    rows = [
        [label, *(f"{own.mean(key.partition('/')[0], key.partition('/')[2] + '/' + own_name).value:.3f}"
                  for own_name in (name, "R@100"))]
        for key, label in ASKED.items()
    ]  # fmt: skip
    return Judgement(
        f"[MASK] rows are worth {points(same)} points of nDCG@10 to a model that was trained with them, and "
        f"{points(anew)} against one that was trained without",
        [
            Check("a model that was trained with them needs them: with - without, same weights", same, unit="points"),
            Check("training with them is worth it: with - a model trained without", anew, unit="points"),
        ],
        [Table("Queries with [MASK] rows and without", ["", name, "R@100"], rows)],
        [Figure(title="Queries with [MASK] rows and without", y_label=name, groups=["SQuAD"],
                bars={label: [as_mean(own.mean(key.partition("/")[0], f"{key.partition('/')[2]}/{name}"))]
                      for key, label in ASKED.items()})],
        [("What a [MASK] holds comes from the frozen half of an encoder that never had a use for it, and one small "
          "layer does not make up for that in 160 steps. The claim is about models that were trained with it from the "
          "first layer on.")],
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
    Experiment(
        id="C8", family="colbert", extra="train",
        claim=f"Filling queries up to {FILLED} rows with [MASK] matters.",
        paper="part of ColBERT's design; no number in ColBERTv2",
        sets=MASK_SETS, measure="nDCG@10 of exact MaxSim; three seeds of both",
        expects="0 to 3 points lost without them by a model that was trained with them, nothing by one trained without",
        differs=DIFFERS + "[MASK] looks at the query's tokens, and they do not look at it, as in ColBERTv2's code.",
        minutes=(2, 15), arms=_mask_arms, judge=_judge_masks,
    ),
)  # fmt: skip
