"""ColBERTv2: what codes lose and save, training with a teacher, and queries filled with [MASK]."""

from __future__ import annotations

from typing import Any

from plait_reproduce.arms import multivector, trained
from plait_reproduce.claims.reading import DIFFERS, Across, Outcomes, Trainings, arms, points
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Line, Table, as_mean
from plait_reproduce.verdict import Check, Estimate

SETS = ("scifact", "climate", "clapnq")
MODEL = "The vectors are those of a small general encoder that was never trained for late interaction. "
CUT = "Cuts of a few thousand passages, not 8.8 million: with few vectors a centroid, centroids do more of the work. "
MARGIN = 0.01  # a loss below one point counts as none at this size


def _codec_arms(_tier: str) -> list[Arm]:
    arms = [Arm(f"float/{name}", multivector.exact, {"set": name}, (name,)) for name in SETS]
    for bits in (0, 1, 2, 4):
        arms += [
            Arm(f"{bits}/{name}", multivector.by_paper_codec, {"set": name, "bits": bits}, (name,)) for name in SETS
        ]
    return arms + _coded_arms()


def _plait_arms(_tier: str) -> list[Arm]:
    return [Arm(f"float/{name}", multivector.exact, {"set": name}, (name,)) for name in SETS] + _coded_arms()


def _coded_arms() -> list[Arm]:
    return [
        Arm(f"plait {bits}/{name}", multivector.by_method, {"bits": bits, "method": "exhaustive", "set": name}, (name,))
        for bits in (1, 2, 4)
        for name in SETS
    ]


def _judge_codec(outcomes: Outcomes) -> Judgement:
    all_sets = Across(outcomes, SETS)
    two, one, signs = (all_sets.less(arm, "float") for arm in "210")
    names = {"float": "float16", "4": "4 bits", "2": "2 bits", "1": "1 bit", "0": "signs alone"}
    plait_names = {"plait 4": "plait, 4 bits", "plait 2": "plait, 2 bits", "plait 1": "plait, 1 bit"}
    return Judgement(
        f"nDCG@10 against float: 2 bits {points(two)}, 1 bit {points(one)}, signs alone {points(signs)} points",
        [
            Check("2 bits lose nothing: 2 bits - float", two, bar=-MARGIN, unit="points"),
            Check("1 bit loses at most a few points: 1 bit - float", one, bar=-0.03, unit="points"),
            Check("centroids help at 1 bit: 1 bit - signs alone", all_sets.less("1", "0"), unit="points"),
        ],
        [all_sets.table("nDCG@10", {**names, **plait_names})],
        [
            Figure(
                title="Quality by bits a dimension",
                y_label="nDCG@10",
                groups=SETS,
                bars={label: all_sets.means(arm) for arm, label in names.items()},
            )
        ],
        ["Rows named plait are of plait's own codec: even steps and a length for each vector, 2 bytes more."],
    )


def _judge_bytes(outcomes: Outcomes) -> Judgement:
    all_sets = Across(outcomes, SETS)
    arms = {"float": "float16", "plait 4": "4 bits", "plait 2": "2 bits", "plait 1": "1 bit"}
    sizes = {arm: all_sets.facts(arm, "bytes") for arm in arms}
    n_rows = all_sets.facts("float", "rows")
    two, one = (
        [whole / coded for whole, coded in zip(sizes["float"], sizes[arm], strict=True)]
        for arm in ("plait 2", "plait 1")
    )
    saved = [(f"{at_two:.1f}x", f"{at_one:.1f}x") for at_two, at_one in zip(two, one, strict=True)]
    rows = [
        [name, f"{n_rows[column]:,.0f}", *(f"{size[column] / 1e6:.2f}" for size in sizes.values()), *saved[column]]
        for column, name in enumerate(SETS)
    ]
    lines = [
        Line(
            name,
            [size[column] / n_rows[column] for size in reversed(sizes.values())],
            [all_sets.means(arm)[column].value for arm in reversed(arms)],
        )
        for column, name in enumerate(SETS)
    ]
    return Judgement(
        f"{min(two):.1f}x to {max(two):.1f}x smaller at 2 bits, {min(one):.1f}x to {max(one):.1f}x at 1 bit",
        [
            Check(
                "float16 bytes over all bytes at 2 bits, the least of the sets",
                Estimate.counted(min(two)),
                bar=6.0,
                weak=4.0,
                wrong=2.0,
                unit="x",
            ),
            Check("the same at 1 bit", Estimate.counted(min(one)), bar=9.0, weak=6.0, wrong=3.0, unit="x"),
        ],
        [
            Table(
                "Megabytes, centroids and postings included",
                ["set", "vectors", *arms.values(), "saved, 2 bits", "saved, 1 bit"],
                rows,
            )
        ],
        [
            Figure(
                title="Quality against bytes a vector: 1, 2 and 4 bits, and float16",
                x_label="bytes a vector",
                y_label="nDCG@10",
                log_x=True,
                lines=lines,
            )
        ],
    )


TRAINED_SETS = trained.SETS
MASK_SETS = ("squad-train", "squad-test")
HERE, THERE, RECALL = "here/nDCG@10", "there/nDCG@10", "here/R@100"
LABELS = {"triples": "triples, BM25's negatives", "lists": "lists of 8 with a teacher's scores"}


def _arms(_tier: str) -> list[Arm]:
    return arms(trained.fixed, {name: {"objective": name} for name in LABELS}, TRAINED_SETS, pooled=None)


def _judge(outcomes: Outcomes) -> Judgement:
    trainings = Trainings(outcomes)
    here, there, recall = (trainings.less(("lists", name), ("triples", name)) for name in (HERE, THERE, RECALL))
    return Judgement(
        f"a teacher's lists against triples: {points(here)} points of nDCG@10 and {points(recall)} of R@100 on SQuAD, "
        f"{points(there)} of nDCG@10 on CLIMATE-FEVER",
        [
            Check("nDCG@10 where it learned: lists - triples", here, unit="points"),
            Check("R@100 where it learned: lists - triples", recall, unit="points"),
            Check("nDCG@10 elsewhere is not worse: lists - triples", there, bar=-0.01, unit="points"),
        ],
        [trainings.table("By what was learned from", LABELS, {HERE: "nDCG@10, SQuAD", RECALL: "R@100, SQuAD",
                                                        THERE: "nDCG@10, CLIMATE-FEVER"})],
        [Figure(title="Learning from triples, and from a teacher", y_label="nDCG@10",
                groups=["SQuAD", "CLIMATE-FEVER"],
                bars={label: [as_mean(trainings.mean(name, measure)) for measure in (HERE, THERE)]
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
    trainings, name = Trainings(outcomes), "nDCG@10"
    same = trainings.less(("with", f"own/{name}"), ("with", f"bare/{name}"))
    trained_gain = trainings.less(("with", f"own/{name}"), ("without", f"own/{name}"))
    rows = [
        [label, *(f"{trainings.mean(key.partition('/')[0], key.partition('/')[2] + '/' + own_name).value:.3f}"
                  for own_name in (name, "R@100"))]
        for key, label in ASKED.items()
    ]  # fmt: skip
    return Judgement(
        f"[MASK] rows are worth {points(same)} points of nDCG@10 to a model that was trained with them, and "
        f"{points(trained_gain)} against one that was trained without",
        [
            Check("a model that was trained with them needs them: with - without, same weights", same, unit="points"),
            Check("training with them is worth it: with - a model trained without", trained_gain, unit="points"),
        ],
        [Table("Queries with [MASK] rows and without", ["", name, "R@100"], rows)],
        [Figure(title="Queries with [MASK] rows and without", y_label=name, groups=["SQuAD"],
                bars={label: [as_mean(trainings.mean(key.partition("/")[0], f"{key.partition('/')[2]}/{name}"))]
                      for key, label in ASKED.items()})],
        [("What a [MASK] holds comes from the frozen half of an encoder that never had a use for it, and one small "
          "layer does not make up for that in 160 steps. The claim is about models that were trained with it from the "
          "first layer on.")],
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="C3",
        family="colbert",
        claim="Residual codes of 2 bits per dimension lose nothing, 1 bit loses little, and signs alone lose more.",
        paper="MRR@10 36.2 with floats, 36.2 at 2 bits, 35.5 at 1 bit, 34.8 with signs alone at 1 bit",
        sets=SETS,
        measure="nDCG@10 of exhaustive MaxSim over the codes, paired by query",
        expects="2 bits within a point of floats; 1 bit within three; signs alone below 1 bit",
        differs=MODEL + CUT + "nDCG@10 rather than MRR@10. Centroids are plait's, trained by spherical k-means.",
        minutes=(3, 15),
        arms=_codec_arms,
        judge=_judge_codec,
    ),
    Experiment(
        id="C4",
        family="colbert",
        claim="Residual codes make the index six to ten times smaller.",
        paper="154 GiB to 25 GiB (2 bits) and 16 GiB (1 bit)",
        sets=SETS,
        measure="bytes of codes, centroids and postings against float16 vectors",
        expects="about 6x at 2 bits and 9x at 1 bit; less on small sets, where centroids weigh more",
        differs=CUT + "Codes have a length byte and a factor byte; postings hold documents, as PLAID's do.",
        minutes=(1, 5),
        arms=_plait_arms,
        judge=_judge_bytes,
    ),
    Experiment(
        id="C1", family="colbert", extra="train",
        claim="Distilling a teacher's scores over retrieved lists beats triples with negatives of BM25.",
        paper="MRR@10 36.0 to 39.7, R@50 82.9 to 86.8, R@1k 96.8 to 98.4",
        sets=TRAINED_SETS, measure="nDCG@10 and R@100 of exact MaxSim; three seeds of both",
        expects="2 to 6 points where it learned, little or nothing elsewhere",
        differs=DIFFERS + "The teacher is the whole encoder, dense and multi vectors together, not a cross-encoder; "
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
