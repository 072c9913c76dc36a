"""BGE-M3 by training: three kinds of embeddings of one tower with and without self-distillation, the temperature,
pre-training, and long documents by a model trained on short ones."""

from __future__ import annotations

from typing import Any

from plait_reproduce.arms import dense, trained
from plait_reproduce.claims.reading import DIFFERS, SEEDS, Outcomes, Trainings, arms, points
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Table, as_mean
from plait_reproduce.verdict import Check

SETS = ("squad-train", "squad-test")
KINDS = ("dense", "sparse", "multi")
QUALITY = {kind: f"{kind}/nDCG@10" for kind in KINDS}
TEMPERATURES = (0.02, 0.05, 1.0)
MORE = DIFFERS + "Dense is the first token's vector after the trained layer. "


def recipe(temperature: float = 0.02, *, distil: bool = True) -> dict[str, Any]:
    return {"objective": "m3", "temperature": temperature, "distil": distil}


def _self(_tier: str) -> list[Arm]:
    return arms(trained.embeddings, {"with": recipe(), "without": recipe(distil=False)}, SETS)


def _judge_self(outcomes: Outcomes) -> Judgement:
    trainings = Trainings(outcomes)
    gains = {kind: trainings.less(("with", name), ("without", name)) for kind, name in QUALITY.items()}
    rest = {"dense": gains["dense"], "multi": gains["multi"]}
    most = trainings.less_of_differences(
        (("with", QUALITY["sparse"]), ("without", QUALITY["sparse"])),
        (("with", QUALITY["dense"]), ("without", QUALITY["dense"])),
    )
    return Judgement(
        "self-distillation: " + ", ".join(f"{kind} {points(gain)}" for kind, gain in gains.items()) + " points",
        [
            Check("sparse gains: with - without", gains["sparse"], unit="points"),
            Check("sparse gains more than dense: gain - gain", most, unit="points"),
            *(Check(f"{kind} loses nothing: with - without", gain, bar=-0.015, unit="points")
              for kind, gain in rest.items()),
        ],
        [trainings.table("nDCG@10", {"with": "with self-distillation", "without": "without"},
                   {name: kind for kind, name in QUALITY.items()})],
        [Figure(title="Three kinds of embeddings, with and without self-distillation", y_label="nDCG@10", groups=KINDS,
                bars={label: [as_mean(trainings.mean(label, QUALITY[kind])) for kind in KINDS]
                      for label in ("with", "without")})],
    )  # fmt: skip


def _temperatures(_tier: str) -> list[Arm]:
    return arms(trained.embeddings, {f"{temperature:g}": recipe(temperature) for temperature in TEMPERATURES}, SETS)


def _judge_temperatures(outcomes: Outcomes) -> Judgement:
    trainings = Trainings(outcomes)
    names = {f"{value:g}": f"temperature {value:g}" for value in TEMPERATURES}
    gains = {kind: trainings.less(("0.02", QUALITY[kind]), ("1", QUALITY[kind])) for kind in ("dense", "multi")}
    return Judgement(
        "0.02 against 1: " + ", ".join(f"{kind} {points(gain)}" for kind, gain in gains.items()) + " points",
        [Check(f"{kind}: temperature 0.02 - 1", gain, unit="points") for kind, gain in gains.items()],
        [trainings.table("nDCG@10", names, {name: kind for kind, name in QUALITY.items()})],
        [Figure(title="By the temperature of training", y_label="nDCG@10", groups=KINDS,
                bars={label: [as_mean(trainings.mean(name, QUALITY[kind])) for kind in KINDS]
                      for name, label in names.items()})],
    )  # fmt: skip


WAYS = {"none": "nothing", "mlm": "masked words alone", "retromae": "RetroMAE"}


def _pretrained(_tier: str) -> list[Arm]:
    return [Arm(f"{way}/{seed}", dense.dense, {"way": way, "seed": seed}, SETS) for way in WAYS for seed in SEEDS]


def _judge_pretrained(outcomes: Outcomes) -> Judgement:
    trainings, name = Trainings(outcomes), "nDCG@10"
    gains = {way: trainings.less(("retromae", name), (way, name)) for way in ("none", "mlm")}
    return Judgement(
        "nDCG@10 after " + ", ".join(f"{label} {trainings.mean(way, name).value:.3f}" for way, label in WAYS.items()),
        [Check(f"RetroMAE - {WAYS[way]}", gain, unit="points") for way, gain in gains.items()],
        [trainings.table("By what went before teaching", WAYS, {name: name, "R@100": "R@100"})],
        [Figure(title="By what went before teaching", y_label=name, groups=["SQuAD"],
                bars={label: [as_mean(trainings.mean(way, name))] for way, label in WAYS.items()})],
        [("The paper's own step is from masked words alone, which is how XLM-R was trained, to RetroMAE. That nothing "
          "at all does best here says that a hundred steps over two thousand sentences unlearn more of the embeddings "
          "that were given than they teach.")],
    )  # fmt: skip


POOLED = {
    "cls": "the first token",
    "mcls 128": "MCLS, every 128",
    "mcls 64": "MCLS, every 64",
    "mean": "the mean of all tokens",
    "best": "the best passage of 128",
}


def _one_vector(_tier: str) -> list[Arm]:
    return [Arm(f"long/{seed}", dense.one_vector, {"seed": seed}, dense.SETS) for seed in SEEDS]


def _judge_one_vector(outcomes: Outcomes) -> Judgement:
    trainings, name = Trainings(outcomes), "nDCG@10"
    means = {way: trainings.mean("long", f"{way}/{name}") for way in POOLED}
    gains = {way: trainings.less(("long", f"{way}/{name}"), ("long", f"cls/{name}")) for way in POOLED}
    rows = [
        [label, f"{means[way].value:.3f}", f"{trainings.mean('long', f'{way}/R@100').value:.3f}", points(gains[way])]
        for way, label in POOLED.items()
    ]
    facts = outcomes["long/0"].facts
    return Judgement(
        f"nDCG@10 by the first token {means['cls'].value:.3f}; MCLS every 128 tokens {points(gains['mcls 128'])}, "
        f"every 64 {points(gains['mcls 64'])}; the best passage {points(gains['best'])} points",
        [Check(f"{POOLED[way]} - the first token", gains[way], unit="points") for way in ("mcls 128", "mcls 64")],
        [Table(f"{facts['documents']:.0f} documents, one vector each; {facts['passages']:.0f} passages",
               ["", name, "R@100", "against the first token"], rows)],
        [Figure(title="Long documents by a model that learned on short ones", y_label=name, groups=["BoolQ, by fours"],
                bars={label: [as_mean(means[way])] for way, label in POOLED.items()})],
        ["The mean of all tokens and the best passage are no part of the claim: they are what one would try instead."],
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="M5", family="m3", extra="train",
        claim="Self-distillation from the sum of all scores improves every kind, sparse most of all.",
        paper="MIRACL nDCG@10: dense 68.7 to 69.2, sparse 36.7 to 53.9, multi 69.3 to 70.5",
        sets=SETS, measure="nDCG@10 of each kind alone; three seeds of both",
        expects="sparse gains 2 to 8 points; dense and multi within a point and a half", differs=MORE,
        minutes=(3, 20), arms=_self, judge=_judge_self,
    ),
    Experiment(
        id="M6", family="m3", extra="train",
        claim="Pre-training with RetroMAE makes a better dense retriever than masked words alone.",
        paper="MIRACL nDCG@10 60.5 without it, 66.1 with it, 69.2 with unsupervised pairs as well",
        sets=SETS, measure="nDCG@10 of the dense vector after the same training; three seeds of each",
        expects="2 to 8 points where little is taught",
        differs="A BERT of two layers at random over the bundled encoder's embeddings of words, not XLM-R: 120 steps "
        "of 24 sentences of SQuAD, with those that are searched among them, before, and 100 steps of 16 questions "
        "after. The stage of unsupervised pairs is left out.",
        minutes=(4, 60), arms=_pretrained, judge=_judge_pretrained,
    ),
    Experiment(
        id="M7", family="m3", extra="train",
        claim="[CLS] at every so many tokens, and the mean of their states, serves long documents better than one.",
        paper="MLDR nDCG@10 41.2 with one [CLS], 45.0 with MCLS, without training",
        sets=dense.SETS, measure="nDCG@10 of one vector a document; three seeds of the head",
        expects="1 to 6 points above one [CLS]; the best of short passages may beat both",
        differs="The encoder is frozen and was trained for the mean of all tokens; a linear head over its first token "
        "is what learns, from 1,000 questions of SQuAD and sentences of 64 tokens at most. Long is 512 tokens, the "
        "most that it reads: four paragraphs of BoolQ about other things end to end, not 8,192 tokens of one text. The "
        "rate is chosen on questions that are held out.",
        minutes=(3, 15), arms=_one_vector, judge=_judge_one_vector,
    ),
    Experiment(
        id="M11", family="m3", extra="train",
        claim="Scores between -1 and 1 need a low temperature in training.",
        paper="temperature 0.02, without an ablation",
        sets=SETS, measure="nDCG@10 of each kind alone; three seeds of each",
        expects="1 fails; 0.02 to 0.05 are best", differs=MORE, minutes=(4, 30),
        arms=_temperatures, judge=_judge_temperatures,
    ),
)  # fmt: skip
