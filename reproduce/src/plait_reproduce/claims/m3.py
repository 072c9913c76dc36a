"""BGE-M3: one encoder's kinds of embeddings, alone and combined, across languages and on long documents; and batches by
length."""

from __future__ import annotations

from plait_reproduce.arms import batching, kinds
from plait_reproduce.claims.reading import Across, Outcomes, points
from plait_reproduce.datasets import in_hash_order
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Line, Table
from plait_reproduce.verdict import Check, Estimate, difference, mean

SETS = ("scifact", "climate", "clapnq")
CROSS = ("xquad-de", "xquad-es")
LONG = ("covidqa",)
WHOLE = ("boolq-long",)  # read whole, not as passages
GENERAL = {"dense+lexical": {"dense": 1.0, "lexical": 0.3}, "all": {"dense": 1.0, "lexical": 0.3, "multi": 1.0}}
LONG_WEIGHTS = {
    "dense+lexical": {"dense": 0.2, "lexical": 0.8},
    "all": {"dense": 0.15, "lexical": 0.5, "multi": 0.35},
}
PARTS = (1, 2, 4, 8)
GRID = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 4.0)
NAMES = {"dense": "Dense", "lexical": "Sparse", "multi": "Multi", "dense+lexical": "D+S", "all": "All"}
LEXICAL = (
    "The encoder has no sparse vectors: BM25 over the same texts takes their place. Scores are scaled to 0 to 1 "
    "for each query before they are added. "
)


def _mode_arms(sets: tuple[str, ...], weights: dict[str, dict[str, float]]) -> list[Arm]:
    return [Arm(f"modes/{name}", kinds.modes, {"set": name, "weights": weights}, (name,)) for name in sets]


def _table(across: Across, measure: str) -> Table:
    return across.table_of(measure, "modes", {f"{mode}/{measure}": label for mode, label in NAMES.items()})


def _figure(across: Across, sets: tuple[str, ...], measure: str) -> Figure:
    bars = {label: across.means("modes", f"{mode}/{measure}") for mode, label in NAMES.items()}
    return Figure(title="Kinds alone and combined", y_label=measure, groups=sets, bars=bars)


def _less(across: Across, arm: str, base: str, measure: str = "nDCG@10") -> Estimate:
    return across.less_within("modes", f"{arm}/{measure}", f"{base}/{measure}")


def _judge_modes(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, SETS)
    multi, both = _less(across, "multi", "dense"), _less(across, "dense+lexical", "dense")
    everything = _less(across, "all", "dense+lexical")
    return Judgement(
        f"nDCG@10: Multi - Dense {points(multi)}, D+S - Dense {points(both)}, All - D+S {points(everything)} points",
        [
            Check("Multi - Dense", multi, unit="points"),
            Check("D+S - Dense", both, unit="points"),
            Check("D+S - Sparse", _less(across, "dense+lexical", "lexical"), unit="points"),
            Check("All - D+S", everything, unit="points"),
        ],
        [_table(across, "nDCG@10")],
        [_figure(across, SETS, "nDCG@10")],
    )


def _judge_cross(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, CROSS)
    gap, fused = _less(across, "dense", "lexical", "R@10"), _less(across, "dense+lexical", "dense", "R@10")
    return Judgement(
        f"R@10 across languages: Dense - Sparse {points(gap)}, D+S - Dense {points(fused)} points",
        [
            Check("words do not cross languages: Dense - Sparse, R@10", gap, bar=0.1, weak=0.0, unit="points"),
            Check("adding them does no harm: D+S - Dense, R@10", fused, bar=-0.02, unit="points"),
        ],
        [_table(across, "R@10"), _table(across, "nDCG@10")],
        [_figure(across, CROSS, "R@10")],
        ["German and Spanish share names, numbers and many stems with English, which is all that words can find here."],
    )


def _judge_long(outcomes: Outcomes) -> Judgement:
    across, all_sets = Across(outcomes, WHOLE), Across(outcomes, (*WHOLE, *LONG))
    words, multi = _less(across, "lexical", "dense"), _less(across, "multi", "dense")
    over = _less(across, "lexical", "multi")
    return Judgement(
        f"nDCG@10 on long documents: Sparse - Dense {points(words)}, Multi - Dense {points(multi)}, Sparse - Multi "
        f"{points(over)} points",
        [
            Check("Sparse - Dense", words, unit="points"),
            Check("Multi - Dense", multi, unit="points"),
            Check("Sparse - Multi", over, unit="points"),
            Check("D+S - Sparse", _less(across, "dense+lexical", "lexical"), unit="points"),
        ],
        [_table(all_sets, "nDCG@10")],
        [_figure(all_sets, (*WHOLE, *LONG), "nDCG@10")],
        [("covidqa is not judged: its articles of some 3,600 words are split into passages of 512 tokens of which the "
          "best counts, so that no vector has to hold a long text. The paper does not "
          "split.")],
    )  # fmt: skip


def _split_arms(tier: str) -> list[Arm]:
    settings = {"n_texts": 16 if tier == "quick" else 32, "length": 256, "parts": list(PARTS)}
    return [Arm("split", batching.split_batches, settings, version=4)]


def _judge_split(outcomes: Outcomes) -> Judgement:
    facts = outcomes["split"].facts
    ways = ("gradcache", "checkpoint")
    worst = max(facts[f"{way} {part} difference"] for way in ways for part in PARTS)
    saved = facts["whole MB"] / max(facts["gradcache 1 MB"], 1.0)
    rows = [[f"parts of {part}", *(f"{facts[f'{way} {part} MB']:.0f}" for way in ways),
             *(f"{facts[f'{way} {part} difference']:.1e}" for way in ways)] for part in PARTS]  # fmt: skip
    rows.append(["whole", f"{facts['whole MB']:.0f}", f"{facts['whole MB']:.0f}", "0", "0"])
    return Judgement(
        f"{saved:.0f}x less memory in parts of one text, by GradCache; gradients differ by {worst:.0e} at most",
        [
            Check("memory of a step: whole / parts of one", Estimate.counted(saved), bar=5.0, weak=2.0, wrong=1.0,
                  unit="x"),
            Check("1e-5 - the largest difference of a gradient, relative", Estimate.counted(1e-5 - worst)),
        ],
        [Table("Megabytes that a step adds, and the difference of its gradient", ["", *(f"{way}, MB" for way in ways),
                                                                               *(f"{way}, gradient" for way in ways)],
               rows)],
        [Figure(title="Memory of a step by the texts of a part", x_label="texts a part", y_label="MB", log_x=True,
                lines=[Line(way, list(PARTS), [facts[f"{way} {part} MB"] for part in PARTS]) for way in ways])],
        ["A process reports the most it ever had, so parts are measured from small to large."],
    )  # fmt: skip


def _padding_arms(_tier: str) -> list[Arm]:
    settings = {"sets": list(SETS), "n_texts": 192, "batch": 16, "length": 180}
    return [Arm("padding", batching.padding, settings, SETS)]


def _judge_padding(outcomes: Outcomes) -> Judgement:
    outcome = outcomes["padding"]
    before, after = outcome.facts["random padded"], outcome.facts["grouped padded"]
    faster = outcome.facts["random seconds"] / outcome.facts["grouped seconds"]
    rows = [
        [name, f"{outcome.facts[f'{name} padded']:.2f}", f"{outcome.facts[f'{name} seconds']:.1f}"]
        for name in ("random", "grouped")
    ]
    return Judgement(
        f"padded over real tokens {before:.2f} to {after:.2f}; {faster:.2f}x faster encoding",
        [
            Check("padded over real tokens, random batches", Estimate.counted(before), bar=1.5, weak=1.2),
            Check("1.15 - padded over real tokens, batches by length", Estimate.counted(1.15 - after)),
            Check("time, random over grouped", Estimate.counted(faster), bar=1.3, weak=1.05, unit="x"),
        ],
        [Table("Batches of 16", ["order", "padded / real tokens", "processor seconds"], rows)],
    )


def _weight_arms(_tier: str) -> list[Arm]:
    grid = {f"w {point}": {"dense": 1.0, "lexical": point} for point in GRID}
    return [Arm(f"grid/{name}", kinds.modes, {"set": name, "weights": grid}, (name,)) for name in (*SETS, *LONG)]


def _judge_weights(outcomes: Outcomes) -> Judgement:
    names = (*SETS, *LONG)
    rows, behind, best_of = [], {}, {}
    for name in names:
        each = {point: outcomes[f"grid/{name}"].each[f"w {point}/nDCG@10"] for point in GRID}
        queries = in_hash_order(each[0.0])
        dev, test = queries[::2], queries[1::2]
        test_values = {measure: {query: values[query] for query in test} for measure, values in each.items()}
        tuned = max(GRID, key=lambda value: sum(each[value][query] for query in dev))
        best = max(GRID, key=lambda value: sum(test_values[value].values()))
        best_of[name] = tuned
        behind[name] = difference(test_values[tuned], test_values[best])
        gain = difference(test_values[tuned], test_values[0.3])
        rows.append(
            [
                name,
                f"{tuned:g}",
                f"{best:g}",
                f"{mean(test_values[0.0]).value:.3f}",
                f"{mean(test_values[0.3]).value:.3f}",
                f"{mean(test_values[tuned]).value:.3f}",
                points(gain),
            ]
        )
    worst = min(behind.values(), key=lambda value: value.value)
    across, long = Across(outcomes, SETS), Across(outcomes, LONG)
    more = long.less_within("grid", "w 1.0/nDCG@10", "w 0.3/nDCG@10")
    less = across.less_within("grid", "w 0.3/nDCG@10", "w 4.0/nDCG@10")
    lines = [
        Line(name, list(GRID), [mean(outcomes[f"grid/{name}"].each[f"w {point}/nDCG@10"]).value for point in GRID])
        for name in names
    ]
    return Judgement(
        "best lexical weight by dev: " + ", ".join(f"{name} {best:g}" for name, best in best_of.items())
        + f"; at worst {points(worst)} points behind the best on test",
        [
            Check("weights of dev serve test: tuned - best in hindsight, the worst set", worst, bar=-0.01,
                  unit="points"),
            Check("long documents want more: weight 1 - 0.3, covidqa", more, unit="points"),
            Check("others do not want all of it: weight 0.3 - 4", less, unit="points"),
        ],
        [Table("nDCG@10 of the test half, by the weight of words beside dense", ["set", "by dev", "best", "0", "0.3",
                                                                              "tuned", "tuned - 0.3"], rows)],
        [Figure(title="Quality by the weight of words beside dense", x_label="weight of the lexical scores",
                y_label="nDCG@10", lines=lines)],
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="M1", family="m3",
        claim="Multi-vector scoring beats dense, dense and sparse together beat either, and all three are best.",
        paper="MIRACL nDCG@10: Dense 69.2, Sparse 53.9, Multi 70.5, D+S 70.4, All 71.5",
        sets=SETS, measure="nDCG@10", expects="All >= D+S >= Dense, Sparse; Multi above Dense",
        differs=LEXICAL + "English sets; the encoder's multi vectors are a projection that was not trained for MaxSim.",
        minutes=(1, 5), arms=lambda _tier: _mode_arms(SETS, GENERAL), judge=_judge_modes,
    ),
    Experiment(
        id="M2", family="m3",
        claim="Across languages full text finds little, and fusion is as good as dense retrieval.",
        paper="MKQA R@100: Dense 75.1, Sparse 45.3, Multi 75.3, D+S 75.3, All 75.5; BM25 39.9",
        sets=CROSS, measure="R@10, questions in German and Spanish on 240 English paragraphs",
        expects="Sparse 20 to 50 points below Dense; fusion like Dense",
        differs=LEXICAL + "The encoder was trained on English alone, so Dense is far below a multilingual one's.",
        minutes=(1, 3), arms=lambda _tier: _mode_arms(CROSS, GENERAL), judge=_judge_cross,
    ),
    Experiment(
        id="M3c", family="m3",
        claim="On long documents sparse beats multi-vector, which beats dense.",
        paper="MLDR nDCG@10: Dense 52.5, Sparse 62.2, Multi 57.6, D+S 64.8, All 65.0; BM25 53.6 (64.1 analysed)",
        sets=(*WHOLE, *LONG), measure="nDCG@10 on documents of some 500 tokens, read whole",
        expects="Sparse > Multi > Dense; BM25 competitive",
        differs=LEXICAL + "Long is 512 tokens, the most that the encoder reads: four paragraphs of BoolQ about other "
        "things end to end, not 8,192 tokens of one text.",
        minutes=(1, 3), arms=lambda _tier: _mode_arms((*WHOLE, *LONG), LONG_WEIGHTS), judge=_judge_long,
    ),
    Experiment(
        id="M8", family="m3",
        claim="Batches that are encoded in parts give the same gradient with a fraction of the memory.",
        paper="the largest batch at 8,192 tokens grows from 6 to 130: more than 20x",
        sets=(), measure="the process's memory for a step, and the largest relative difference of a gradient",
        expects="memory in proportion to the part; gradients equal to 1e-5",
        differs="A transformer of four layers with random weights, 16 texts of 256 tokens a side, on a CPU. The memory "
        "of one batch is compared, not the largest batch that fits.",
        minutes=(1, 1), arms=_split_arms, judge=_judge_split, extra="train",
    ),
    Experiment(
        id="M9", family="m3",
        claim="Batches of texts of similar length have little padding and run faster.",
        paper="no single number; grouping by length is part of the training recipe",
        sets=SETS, measure="padded over real tokens, and processor time, of 192 mixed documents in batches of 16",
        expects="1.5 to 2.5 becomes 1.05 to 1.15; 30 to 100% faster",
        differs="Encoding rather than training; documents of up to 180 tokens from three sets.",
        minutes=(2, 5), arms=_padding_arms, judge=_judge_padding,
    ),
    Experiment(
        id="M12", family="m3",
        claim="The best weights depend on the task: long documents want more sparse weight.",
        paper="D+S weights 1 and 0.3 in general, 0.2 and 0.8 for long documents",
        sets=(*SETS, *LONG), measure="nDCG@10 by the lexical weight; half of the queries choose, half are measured",
        expects="a flat optimum; more weight for words on long documents",
        differs=LEXICAL, minutes=(1, 5), arms=_weight_arms, judge=_judge_weights,
    ),
)  # fmt: skip
