"""ANNCUR, ADACUR and AXN: finding the best items of an expensive scorer with few calls of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from plait_reproduce.arms import cross_encoder, cur
from plait_reproduce.claims.reading import Outcomes, points
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Line, Table, as_mean
from plait_reproduce.verdict import Check, Estimate, difference, mean

SETS = (cur.SET,)
WAYS = {"dense": "dense + rerank", "bm25": "BM25 + rerank", "anncur": "ANNCUR"}
N_ANCHORS = 200
CROSS_PAIRS = ((1, 100), (10, 100), (50, 200))
BUDGETS = (50, 100, 200, 500)  # points of the curve at k = 10
PAIRS = ((1, 50), (1, 100), *((10, b) for b in BUDGETS), (50, 100), (50, 200), (100, 200), (100, 500))
COUNTS = (25, 50, 100, 200)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
ROUNDS = (1, 2, 5, 10)
CUT_PAIRS = ((1, 50), (10, 100))
DENSE_PAIRS = ((1, 20), (100, 200))
STAND_IN = (
    "The expensive scorer is MaxSim of a late-interaction encoder, a stand-in for a cross-encoder; the dense retriever "
    "is the same encoder's and so a strong one. 1,000 entities and 150 test queries, not 10,000 and more. "
)


def _equal_arms(_tier: str) -> list[Arm]:
    by_maxsim = [
        Arm(f"{k}/{budget}", cur.at_equal_calls, {"n_queries": N_ANCHORS, "budget": budget, "k": k}, SETS)
        for k, budget in PAIRS
    ]
    return by_maxsim + [
        Arm(f"cross {k}/{budget}", cross_encoder.at_equal_calls, {"head": "emb", "seed": 0, "budget": budget, "k": k},
            cross_encoder.SETS)
        for k, budget in CROSS_PAIRS
    ]  # fmt: skip


def _judge_equal(outcomes: Outcomes) -> Judgement:
    def gain(k: int, budget: int, base: str = "dense", scorer: str = "") -> Estimate:
        recalls = outcomes[f"{scorer}{k}/{budget}"].each
        return difference(recalls["anncur"], recalls[base])

    def row(name: str, k: int, budget: int) -> list[str]:
        outcome = outcomes[name]
        means = (f"{mean(outcome.each[way]).value:.3f}" for way in ("dense", "bm25", "anncur"))
        return [f"k = {k}, {budget} calls", *means, f"{outcome.facts['anchors']:.0f}"]

    header = ["", "dense", "BM25", "ANNCUR", "anchors, by dev"]
    budgets = ((1, 100), (10, 100), (50, 200), (100, 500))

    def figure(title: str, scorer: str, chosen: Sequence[tuple[int, int]]) -> Figure:
        return Figure(
            title=title, y_label="recall", groups=[f"k = {k}, B = {b}" for k, b in chosen],
            bars={label: [as_mean(mean(outcomes[f"{scorer}{k}/{b}"].each[way])) for k, b in chosen]
                  for way, label in WAYS.items()},
        )  # fmt: skip

    def budget_line(label: str, way: str) -> Line:
        estimates = [mean(outcomes[f"10/{b}"].each[way]) for b in BUDGETS]
        return Line(
            label,
            list(BUDGETS),
            [estimate.value for estimate in estimates],
            [estimate.low for estimate in estimates],
            [estimate.high for estimate in estimates],
        )

    return Judgement(
        f"ANNCUR against dense at equal calls, recall: with a cross-encoder {points(gain(50, 200, scorer='cross '))} "
        f"(k = 50, B = 200) and {points(gain(10, 100, scorer='cross '))} (k = 10, B = 100); with MaxSim "
        f"{points(gain(50, 200))} (k = 50, B = 200) and {points(gain(100, 500))} (k = 100, B = 500) points",
        [
            *(Check(f"a cross-encoder: above {label} at k = 50, B = 200", gain(50, 200, base, "cross "), unit="points")
              for base, label in (("dense", "dense"), ("bm25", "BM25"))),
            *(Check(f"MaxSim: above {label} at k = {k}, B = {b}", gain(k, b, base), unit="points")
              for base, label in (("dense", "dense"), ("bm25", "BM25")) for k, b in ((50, 200), (100, 500))),
        ],
        [Table("Recall of the exact best k by a small [EMB] cross-encoder", header,
               [row(f"cross {k}/{b}", k, b) for k, b in CROSS_PAIRS]),
         Table("Recall of the exact best k by MaxSim", header, [row(f"{k}/{b}", k, b) for k, b in PAIRS])],
        [figure("Recall of a cross-encoder's best k at equal calls", "cross ", CROSS_PAIRS),
         figure("Recall of MaxSim's best k at equal calls", "", budgets),
         Figure(title="Recall of MaxSim's best ten by calls", x_label="calls (B)", y_label="recall", log_x=True,
                lines=[budget_line(label, way) for way, label in WAYS.items()])],
    )  # fmt: skip


def _count_arms(_tier: str) -> list[Arm]:
    return [
        Arm(f"{n}/{k}", cur.at_equal_calls, {"n_queries": n, "budget": 200, "k": k}, SETS)
        for n in COUNTS
        for k in (10, 50)
    ]


def _judge_counts(outcomes: Outcomes) -> Judgement:
    steps = {k: [difference(outcomes[f"{after}/{k}"].each["anncur"], outcomes[f"{before}/{k}"].each["anncur"])
                 for before, after in pairwise(COUNTS)] for k in (10, 50)}  # fmt: skip
    whole = {k: difference(outcomes[f"200/{k}"].each["anncur"], outcomes[f"25/{k}"].each["anncur"]) for k in (10, 50)}
    worst = min((step for step_count in steps.values() for step in step_count), key=lambda step: step.value)
    lines = []
    for k in (10, 50):
        means = [mean(outcomes[f"{n}/{k}"].each["anncur"]) for n in COUNTS]
        lines.append(Line(f"k = {k}", list(COUNTS), [mean.value for mean in means], [mean.low for mean in means],
                          [mean.high for mean in means]))  # fmt: skip
    return Judgement(
        f"25 to 200 anchor queries: {points(whole[10])} (k = 10) and {points(whole[50])} points (k = 50) at B = 200",
        [
            Check("200 - 25 anchor queries, k = 10", whole[10], unit="points"),
            Check("200 - 25 anchor queries, k = 50", whole[50], unit="points"),
            Check("no step down: the worst step", worst, bar=-0.01, unit="points"),
        ],
        figures=[Figure(title="Recall by anchor queries (B = 200)", x_label="anchor queries (k_q)", y_label="recall",
                        log_x=True, lines=lines)],
    )  # fmt: skip


def _split_arms(_tier: str) -> list[Arm]:
    return [
        Arm(f"{share}/{k}", cur.by_split, {"n_queries": N_ANCHORS, "budget": 200, "k": k, "share": share}, SETS)
        for share in SHARES
        for k in (10, 50)
    ]


def _judge_splits(outcomes: Outcomes) -> Judgement:
    checks, lines, said = [], [], []
    for k in (10, 50):
        means = {share: mean(outcomes[f"{share}/{k}"].each["anncur"]) for share in SHARES}
        oracle = max(SHARES, key=lambda share: means[share].value)
        on_dev = max(SHARES, key=lambda share: mean(outcomes[f"{share}/{k}"].each["dev"]).value)
        behind = difference(outcomes[f"{on_dev}/{k}"].each["anncur"], outcomes[f"{oracle}/{k}"].each["anncur"])
        spread = difference(outcomes[f"{on_dev}/{k}"].each["anncur"], outcomes[f"0.9/{k}"].each["anncur"])
        checks += [
            Check(f"the split matters: split of dev - 90% anchors, k = {k}", spread, unit="points"),
            Check(f"dev finds it: split of dev - best split, k = {k}", behind, bar=-0.04, unit="points"),
        ]
        said.append(f"k = {k}: best {oracle:.0%}, dev chose {on_dev:.0%} ({points(behind)} points)")
        lines.append(Line(f"k = {k}", [100 * share for share in SHARES], [mean.value for mean in means.values()],
                          [mean.low for mean in means.values()], [mean.high for mean in means.values()]))  # fmt: skip
    return Judgement(
        "; ".join(said), checks,
        figures=[Figure(title="Recall by the share of 200 calls that goes to anchors", x_label="% of calls for anchors",
                        y_label="recall", lines=lines)],
    )  # fmt: skip


def _adacur_arms(_tier: str) -> list[Arm]:
    arms = [Arm(f"anncur {k}/{b}", cur.at_equal_calls, {"n_queries": N_ANCHORS, "budget": b, "k": k}, SETS)
            for k, b in CUT_PAIRS]  # fmt: skip
    return arms + [
        Arm(f"{first} {k}/{b}", cur.in_rounds,
            {"n_queries": N_ANCHORS, "budget": b, "k": k, "n_rounds": 5, "first": first}, SETS)
        for k, b in CUT_PAIRS for first in ("random", "dense")
    ]  # fmt: skip


def _judge_adacur(outcomes: Outcomes) -> Judgement:
    gain, cut, rows = {}, {}, []
    for k, b in CUT_PAIRS:
        base, adaptive = outcomes[f"anncur {k}/{b}"].each["anncur"], outcomes[f"random {k}/{b}"].each["adacur"]
        gain[k] = difference(adaptive, base)
        missed = 1 - mean(base).value
        cut[k] = gain[k].value / missed if missed else 0.0
        columns = [base, adaptive, outcomes[f"dense {k}/{b}"].each["adacur"], outcomes[f"anncur {k}/{b}"].each["dense"]]
        rows.append([f"k = {k}, B = {b}", *(f"{mean(each).value:.3f}" for each in columns)])
    missed = max(1 - mean(outcomes["anncur 1/50"].each["anncur"]).value, 1e-9)
    share = Estimate(cut[1], gain[1].low / missed, gain[1].high / missed, gain[1].n)
    return Judgement(
        f"ADACUR's recall against ANNCUR's: {points(gain[1])} points at k = 1, B = 50 (error {-100 * cut[1]:+.0f}%), "
        f"{points(gain[10])} at k = 10, B = 100 ({-100 * cut[10]:+.0f}%)",
        [
            Check("error cut at k = 1, B = 50, as a share of ANNCUR's", share, bar=0.3, weak=0.0, unit="%"),
            Check("recall at k = 10, B = 100: ADACUR - ANNCUR", gain[10], unit="points"),
        ],
        [Table("Recall of the exact best k", ["", "ANNCUR", "ADACUR, random start", "ADACUR, dense start",
                                             "dense + rerank"], rows)],
    )  # fmt: skip


def _axn_arms(_tier: str) -> list[Arm]:
    return [Arm(f"{k}/{b}", cur.on_dense, {"budget": b, "k": k, "n_rounds": 5}, SETS) for k, b in DENSE_PAIRS]


def _judge_axn(outcomes: Outcomes) -> Judgement:
    gain = {key: difference(outcome.each["axn"], outcome.each["dense"]) for key, outcome in outcomes.items()}
    rows = [
        [f"k = {key.split('/')[0]}, B = {key.split('/')[1]}", f"{mean(outcome.each['dense']).value:.3f}",
         f"{mean(outcome.each['axn']).value:.3f}", f"{outcome.facts['lambda']:g}"]
        for key, outcome in outcomes.items()
    ]  # fmt: skip
    return Judgement(
        f"AXN against retrieve-and-rerank: {points(gain['1/20'])} points (k = 1, B = 20), {points(gain['100/200'])} "
        "(k = 100, B = 200)",
        [
            Check("k = 1, B = 20: AXN - rerank", gain["1/20"], unit="points"),
            Check("k = 100, B = 200: AXN - rerank", gain["100/200"], unit="points"),
        ],
        [Table("Recall of the exact best k", ["", "dense + rerank", "AXN", "lambda, by dev"], rows)],
    )  # fmt: skip


def _round_arms(_tier: str) -> list[Arm]:
    return [
        Arm(f"{n}/{k}", cur.in_rounds,
            {"n_queries": N_ANCHORS, "budget": 100, "k": k, "n_rounds": n, "first": "random"}, SETS)
        for n in ROUNDS for k in (1, 10)
    ]  # fmt: skip


def _judge_rounds(outcomes: Outcomes) -> Judgement:
    early = {k: difference(outcomes[f"5/{k}"].each["adacur"], outcomes[f"1/{k}"].each["adacur"]) for k in (1, 10)}
    late = {k: difference(outcomes[f"5/{k}"].each["adacur"], outcomes[f"10/{k}"].each["adacur"]) for k in (1, 10)}
    lines = []
    for k in (1, 10):
        means = [mean(outcomes[f"{n}/{k}"].each["adacur"]) for n in ROUNDS]
        lines.append(Line(f"k = {k}", list(ROUNDS), [mean.value for mean in means], [mean.low for mean in means],
                          [mean.high for mean in means]))  # fmt: skip
    return Judgement(
        f"1 to 5 rounds {points(early[10])} points of recall at k = 10; 5 instead of 10 {points(late[10])}",
        [
            Check("rounds help: 5 - 1, k = 10", early[10], unit="points"),
            Check("and are enough by 5: 5 - 10, k = 10", late[10], bar=-0.03, unit="points"),
            Check("and are enough by 5: 5 - 10, k = 1", late[1], bar=-0.03, unit="points"),
        ],
        figures=[Figure(title="ADACUR's recall by rounds (B = 100)", x_label="rounds", y_label="recall", log_x=True,
                        lines=lines)],
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="A1", family="anncur",
        claim="For k above 10, ANNCUR finds more of the scorer's best k than dense or TF-IDF retrieval at equal calls.",
        paper="plots only; ahead of all distilled dual encoders for k above 10, not always for k = 1 and 10",
        sets=(*SETS, *cross_encoder.SETS), measure="recall of the exact best k with a budget of B calls", extra="train",
        expects="ahead at k >= 50 where B is at least twice k; behind at k = 1",
        differs="Two scorers. One is the [EMB] cross-encoder of A2, two joint layers over a frozen encoder, on 600 "
        "sentences of SQuAD with 100 anchor queries. The other is MaxSim on entities. " + STAND_IN + "No retriever is "
        "distilled from a scorer. Split and cut are chosen on dev, not on the test queries.",
        minutes=(3, 12), arms=_equal_arms, judge=_judge_equal,
    ),
    Experiment(
        id="A5", family="anncur",
        claim="ANNCUR's recall grows steadily with the number of anchor queries.",
        paper="k_q = 100, 500, 2000: rising curves",
        sets=SETS, measure="recall at B = 200", expects="monotone",
        differs=STAND_IN + "25 to 200 anchor queries.", minutes=(2, 8), arms=_count_arms, judge=_judge_counts,
    ),
    Experiment(
        id="A8", family="anncur",
        claim="With random anchors the split of calls matters (anchors or reranking), and dev queries find a good one.",
        paper="10 to 90% of the budget; the authors report the best split on the test queries",
        sets=SETS, measure="recall at B = 200", expects="best near 20 to 50%; dev's choice within 4 points of the best",
        differs=STAND_IN, minutes=(2, 8), arms=_split_arms, judge=_judge_splits,
    ),
    Experiment(
        id="A9", family="anncur",
        claim="Choosing anchors for each query in rounds (ADACUR) cuts the recall error of ANNCUR.",
        paper="up to 70% less error at k = 1", sets=SETS, measure="recall at B = 50 and 100, 5 rounds",
        expects="error at k = 1 down by 30 to 70% on smooth score matrices",
        differs=STAND_IN + "With 100 calls for 1,000 entities ANNCUR misses one best in fifty, which leaves nothing to "
        "cut: k = 1 has 50 calls.",
        minutes=(1, 6), arms=_adacur_arms, judge=_judge_adacur,
    ),
    Experiment(
        id="A10", family="anncur",
        claim="AXN on plain dense vectors finds more than retrieve-and-rerank at equal calls, with no indexing cost.",
        paper="YuGiOh: +5.2% at k = 1, B = 100 and +54% at k = 100, B = 500",
        sets=SETS, measure="recall with B calls, 5 rounds", expects="a small gain at k = 1, a large one at k = 100",
        differs=STAND_IN + "So B is smaller than the paper's 100 and 500, with which dense retrieval misses nothing "
        "here. Lambda is chosen on dev.",
        minutes=(3, 10), arms=_axn_arms, judge=_judge_axn,
    ),
    Experiment(
        id="A12", family="anncur",
        claim="Recall saturates at five to ten rounds.",
        paper="5 rounds on entity linking, 10 on BEIR", sets=SETS, measure="recall of ADACUR at B = 100",
        expects="little gained beyond 5", differs=STAND_IN, minutes=(2, 8), arms=_round_arms, judge=_judge_rounds,
    ),
)  # fmt: skip
