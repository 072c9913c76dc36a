"""ColBERTv2 and PLAID: what codes lose, what they save, and how few rows need be looked at."""

from __future__ import annotations

from plait_reproduce.arms import multi
from plait_reproduce.claims.reading import Across, Outcomes, points
from plait_reproduce.estimates import Estimate
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Line, Table
from plait_reproduce.verdict import Check

SETS = ("scifact", "climate", "clapnq")
MODEL = "The vectors are those of a small general encoder that was never trained for late interaction. "
CUT = "Cuts of a few thousand passages, not 8.8 million: with few vectors a centroid, centroids do more of the work. "
MARGIN = 0.01  # a loss below one point is no loss at this size


def _codec_arms(_tier: str) -> list[Arm]:
    arms = [Arm(f"float/{name}", multi.exact, {"set": name}, (name,)) for name in SETS]
    for bits in (0, 1, 2, 4):
        arms += [Arm(f"{bits}/{name}", multi.by_paper_codec, {"set": name, "bits": bits}, (name,)) for name in SETS]
    return arms + _coded_arms()


def _plait_arms(_tier: str) -> list[Arm]:
    return [Arm(f"float/{name}", multi.exact, {"set": name}, (name,)) for name in SETS] + _coded_arms()


def _coded_arms() -> list[Arm]:
    return [
        Arm(f"plait {bits}/{name}", multi.by_method, {"bits": bits, "method": "exhaustive", "set": name}, (name,))
        for bits in (1, 2, 4)
        for name in SETS
    ]


def _judge_codec(outcomes: Outcomes) -> Judgement:
    all_sets = Across(outcomes, SETS)
    two, one, signs = (all_sets.less(arm, "float") for arm in "210")
    names = {"float": "float16", "4": "4 bits", "2": "2 bits", "1": "1 bit", "0": "signs alone"}
    own = {"plait 4": "plait, 4 bits", "plait 2": "plait, 2 bits", "plait 1": "plait, 1 bit"}
    return Judgement(
        f"nDCG@10 against float: 2 bits {points(two)}, 1 bit {points(one)}, signs alone {points(signs)} points",
        [
            Check("2 bits lose nothing: 2 bits - float", two, bar=-MARGIN, unit="points"),
            Check("1 bit loses at most a few points: 1 bit - float", one, bar=-0.03, unit="points"),
            Check("centroids help at 1 bit: 1 bit - signs alone", all_sets.less("1", "0"), unit="points"),
        ],
        [all_sets.table("nDCG@10", {**names, **own})],
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
        [name, f"{n_rows[place]:,.0f}", *(f"{own[place] / 1e6:.2f}" for own in sizes.values()), *saved[place]]
        for place, name in enumerate(SETS)
    ]
    lines = [
        Line(
            name,
            [own[place] / n_rows[place] for own in reversed(sizes.values())],
            [all_sets.means(arm)[place].value for arm in reversed(arms)],
        )
        for place, name in enumerate(SETS)
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


EXPERIMENTS = (
    Experiment(
        id="C3",
        family="colbert",
        claim="Residual codes of 2 bits a dimension lose nothing, 1 bit loses little, and signs alone lose more.",
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
)
