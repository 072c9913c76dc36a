"""ColXTR and WARP: XTR's scoring on compressed vectors, its cost in quality, and its savings."""

from __future__ import annotations

from typing import Any

from plait.evaluate.compare import Mean
from plait_reproduce.arms import multivector
from plait_reproduce.claims.reading import Across, Outcomes, halves, points
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Line, Table
from plait_reproduce.verdict import Check, Estimate

SETS = ("scifact", "climate", "clapnq")
SWEPT = ("scifact", "climate")
EXACT = {"method": "xtr", "bits": 8, "options": {"n_tokens": 500}}
CELLS = (1, 2, 4, 6, 10, 20)
TOKENS = (50, 100, 200, 500, 1000, 5000)
PROBES = (1, 2, 4, 8, 16, 32, 64)
WARP_CELLS = (4, 8, 16, 32)
PLAID_CELLS = (1, 2, 4)
NEAR = 0.005  # of nDCG@10: half a point
PRIMES = (10, 30, 100, 300, 1000, 3000, 10000)
UNTRAINED = (
    "One encoder that was trained with neither objective serves both sides, so what is compared is the search alone. "
)
SMALL = "Cuts of 600 to 2,000 passages. "


def _arms(settings_by_arm: dict[str, dict[str, Any]], sets: tuple[str, ...]) -> list[Arm]:
    return [
        Arm(f"{name}/{set_name}", multivector.by_method, {**settings, "set": set_name}, (set_name,))
        for name, settings in settings_by_arm.items()
        for set_name in sets
    ]


def _coded_arms(_tier: str) -> list[Arm]:
    settings_by_arm: dict[str, dict[str, Any]] = {"xtr": EXACT}
    settings_by_arm.update({f"colxtr {bits}": {"method": "colxtr", "bits": bits} for bits in (1, 2, 4)})
    settings_by_arm["plaid"] = {"method": "plaid", "bits": 2, "k": 100}
    return _arms(settings_by_arm, SETS)


def _judge_coded(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, SETS)
    one, two = across.less("colxtr 1", "xtr"), across.less("colxtr 2", "xtr")
    names = {
        "xtr": "XTR, exact",
        "colxtr 4": "ColXTR, 4 bits",
        "colxtr 2": "ColXTR, 2 bits",
        "colxtr 1": "ColXTR, 1 bit",
    }
    return Judgement(
        f"ColXTR against exact XTR, nDCG@10: {points(two)} at 2 bits, {points(one)} at 1 bit",
        [
            Check("1 bit costs at most four points: ColXTR - XTR", one, bar=-0.04, unit="points"),
            Check("2 bits cost at most one point: ColXTR - XTR", two, bar=-0.01, unit="points"),
        ],
        [across.table("nDCG@10", {**names, "plaid": "PLAID, 2 bits"})],
        [Figure(title="XTR's scoring on floats and on codes", y_label="nDCG@10", groups=SETS,
                bars={label: across.means(arm) for arm, label in names.items()})],
    )  # fmt: skip


def _size_arms(_tier: str) -> list[Arm]:
    exact = [Arm(f"float/{name}", multivector.exact, {"set": name}, (name,)) for name in SETS]
    return exact + _arms({f"colxtr {bits}": {"method": "colxtr", "bits": bits} for bits in (1, 2)}, SETS)


def _judge_size(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, SETS)
    flat = [2 * n_bytes for n_bytes in across.facts("float", "bytes")]  # float32, as in the paper's flat index
    saved = {
        bits: [
            1 - coded_bytes / whole
            for coded_bytes, whole in zip(across.facts(f"colxtr {bits}", "bytes"), flat, strict=True)
        ]
        for bits in (1, 2)
    }
    rows = [
        [name, f"{flat[column] / 1e6:.1f} MB", *(f"{100 * saved[bits][column]:.1f}%" for bits in (1, 2))]
        for column, name in enumerate(SETS)
    ]
    return Judgement(
        f"{100 * min(saved[1]):.1f} to {100 * max(saved[1]):.1f}% smaller at 1 bit, {100 * min(saved[2]):.1f} to "
        f"{100 * max(saved[2]):.1f}% at 2 bits",
        [Check("bytes saved against flat float32 at 1 bit, the least of the sets", Estimate.counted(min(saved[1])),
               bar=0.95, weak=0.9, wrong=0.8, unit="%")],
        [Table("Bytes saved against flat float32", ["set", "flat", "1 bit", "2 bits"], rows)],
    )  # fmt: skip


def _cells_arms(_tier: str) -> list[Arm]:
    settings_by_arm = {f"cells {n}": {"method": "colxtr", "bits": 2, "options": {"n_cells": n}} for n in CELLS}
    settings_by_arm.update({f"tokens {n}": {"method": "colxtr", "bits": 2, "options": {"n_tokens": n}} for n in TOKENS})
    return _arms(settings_by_arm, SWEPT)


def _judge_cells(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, SWEPT)
    early, late = across.less("cells 4", "cells 1"), across.less("cells 10", "cells 20")
    tokens = across.less("tokens 500", "tokens 5000")
    return Judgement(
        f"nDCG@10: 1 to 4 cells {points(early)}, 10 instead of 20 cells {points(late)}, k = 500 instead of 5000 "
        f"{points(tokens)} points",
        [
            Check("10 cells are enough: 10 - 20", late, bar=-0.01, unit="points"),
            Check("k = 500 is enough: 500 - 5000", tokens, bar=-0.01, unit="points"),
            Check("fewer than that are not: cells 4 - 1", early, unit="points"),
        ],
        figures=[
            Figure(title="Cells that each query row names", x_label="cells (ncells)", y_label="nDCG@10", log_x=True,
                   lines=across.lines([f"cells {n}" for n in CELLS], CELLS)),
            Figure(title="Rows that each query row keeps", x_label="rows kept (k)", y_label="nDCG@10", log_x=True,
                   lines=across.lines([f"tokens {n}" for n in TOKENS], TOKENS)),
        ],
    )  # fmt: skip


def _warp_arms(_tier: str) -> list[Arm]:
    settings_by_arm: dict[str, dict[str, Any]] = {"xtr": EXACT, "plaid": {"method": "plaid", "bits": 4, "k": 100}}
    settings_by_arm.update({f"warp {bits}": {"method": "warp", "bits": bits} for bits in (2, 4)})
    exact = [Arm(f"float/{name}", multivector.exact, {"set": name}, (name,)) for name in SETS]
    return exact + _arms(settings_by_arm, SETS)


def _tuned() -> dict[str, dict[str, Any]]:
    """Both methods with fewer probed cells than usual: a set of a few thousand cells needs fewer."""
    settings_by_arm = {f"warp {n} cells": {"method": "warp", "bits": 4, "options": {"n_probe": n}} for n in WARP_CELLS}
    return settings_by_arm | {f"plaid {n} cells": {"method": "plaid", "bits": 4, "k": 100, "options": {"n_probe": n}}
                    for n in PLAID_CELLS}  # fmt: skip


def _speed_arms(tier: str) -> list[Arm]:
    timed = {"xtr": EXACT, "warp 2": {"method": "warp", "bits": 2}, **_tuned()}
    settings = {"methods": timed}
    times = [Arm(f"times/{name}", multivector.methods_in_turn, {**settings, "set": name}, (name,)) for name in SETS]
    return _warp_arms(tier) + _arms(_tuned(), SETS) + times


def _fewest(dev: Across, method: str, counts: tuple[int, ...]) -> int:
    """The fewest cells within half a point of the most, on the dev queries."""
    best = max(dev.mean(f"{method} {n} cells").value for n in counts)
    return next(n for n in counts if dev.mean(f"{method} {n} cells").value >= best - NEAR)


def _against_time(across: Across, label: str, arms: list[str]) -> Line:
    """Quality over milliseconds per query, with the interval of the quality."""
    times, quality = [across.mean("times", f"{arm}/seconds") for arm in arms], [across.mean(arm) for arm in arms]
    return Line(
        label,
        [1000 * time.value for time in times],
        [estimate.value for estimate in quality],
        [estimate.low for estimate in quality],
        [estimate.high for estimate in quality],
    )


def _judge_speed(outcomes: Outcomes) -> Judgement:
    across, (dev, test) = Across(outcomes, SETS), halves(outcomes, SETS)
    n_warp, n_plaid = _fewest(dev, "warp", WARP_CELLS), _fewest(dev, "plaid", PLAID_CELLS)
    warp, plaid = f"warp {n_warp} cells", f"plaid {n_plaid} cells"
    usual = {"warp": f"warp {WARP_CELLS[-1]} cells", "plaid": "plaid 2 cells"}
    brute = across.times_within("times", "xtr/seconds", f"{warp}/seconds")
    over = across.times_within("times", f"{plaid}/seconds", f"{warp}/seconds")
    as_usual = across.times_within("times", f"{usual['plaid']}/seconds", f"{usual['warp']}/seconds")
    loss = test.less(warp, plaid)
    smaller = {bits: across.fact("float", "bytes") / across.fact(f"warp {bits}", "bytes") for bits in (2, 4)}
    scored = across.fact("xtr", "tokens: rows") / across.fact(warp, "codes: rows")
    labels = {"xtr": "XTR, every row", plaid: f"PLAID, {n_plaid} cell{'s' * (n_plaid > 1)}",
             usual["plaid"]: "PLAID, 2 cells (usual)",
             warp: f"WARP, {n_warp} cells", usual["warp"]: "WARP, 32 cells (usual)"}  # fmt: skip
    rows = [
        [label, *(f"{1000 * mean.value:.2f}" for mean in across.means("times", f"{arm}/seconds")),
         f"{across.mean(arm).value:.3f}"]
        for arm, label in labels.items()
    ]  # fmt: skip
    return Judgement(
        f"{brute.value:.1f}x faster than XTR over every row and {over.value:.1f}x than PLAID, each with the fewest "
        f"cells that serve ({as_usual.value:.1f}x with the usual ones); {smaller[4]:.1f}x smaller than float16 at 4 "
        f"bits, {smaller[2]:.1f}x at 2",
        [
            Check("time: XTR over every row / WARP", brute, bar=3.0, weak=1.5, wrong=1.0, unit="x"),
            Check("time: PLAID / WARP", over, bar=1.5, weak=1.0, unit="x"),
            Check("bytes: float16 vectors / WARP at 4 bits", Estimate.counted(smaller[4]), bar=2.0, unit="x"),
        ],
        [Table("Milliseconds a query, one thread, in one run", ["", *SETS, "nDCG@10, all"], rows)],
        [Figure(title="Time of a query: XTR over every row, PLAID and WARP", y_label="milliseconds", groups=SETS,
                bars={label: [Mean(1000 * mean.value, 1000 * mean.low, 1000 * mean.high)
                              for mean in across.means("times", f"{arm}/seconds")]
                      for arm, label in (("xtr", "XTR"), (plaid, labels[plaid]), (warp, labels[warp]))}),
         Figure(title="Quality against time: PLAID with 1 to 4 cells, WARP with 4 to 32, XTR over every row",
                x_label="milliseconds a query", y_label="nDCG@10, all sets", log_x=True, lines=[
                    _against_time(across, "PLAID", [f"plaid {n} cells" for n in PLAID_CELLS]),
                    _against_time(across, "WARP", [f"warp {n} cells" for n in WARP_CELLS]),
                    _against_time(across, "XTR", ["xtr"])])],
        [
            (f"Half of the queries choose the cells: the fewest within half a point of nDCG@10 of the most. WARP is "
             f"then {points(loss)} points from PLAID on the other half. XTR scores {scored:.1f}x as many rows as WARP. "
             "That is counted; times are ratios within one run, on a machine that may have done other work as well.")
        ],
    )  # fmt: skip


def _judge_kept(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, SETS)
    quality, recall = across.less("warp 4", "xtr"), across.less("warp 4", "xtr", "R@100")
    names = {"xtr": "XTR, exact", "warp 4": "WARP, 4 bits", "warp 2": "WARP, 2 bits"}
    return Judgement(
        f"WARP against exact XTR: nDCG@10 {points(quality)}, R@100 {points(recall)} points",
        [
            Check("nDCG@10 is kept: WARP, 4 bits - XTR", quality, bar=-0.01, unit="points"),
            Check("R@100 is kept: WARP, 4 bits - XTR", recall, bar=-0.01, unit="points"),
        ],
        [across.table("nDCG@10", names), across.table("R@100", names, "R@100")],
        [Figure(title="WARP beside exact XTR", y_label="R@100", groups=SETS,
                bars={label: across.means(arm, "R@100") for arm, label in names.items()})],
    )  # fmt: skip


def _judge_bits(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, SETS)
    near, far = across.less("warp 4", "warp 2"), across.less("warp 4", "warp 2", "R@100")
    return Judgement(
        f"4 bits instead of 2: nDCG@10 {points(near)}, R@100 {points(far)} points",
        [Check("4 bits help at small k: nDCG@10, 4 bits - 2 bits", near, unit="points")],
        [across.table("nDCG@10", {"warp 2": "2 bits", "warp 4": "4 bits"}),
         across.table("R@100", {"warp 2": "2 bits", "warp 4": "4 bits"}, "R@100")],
        [Figure(title="WARP at 2 and at 4 bits", y_label="nDCG@10", groups=SETS,
                bars={"2 bits": across.means("warp 2"), "4 bits": across.means("warp 4")})],
    )  # fmt: skip


def _probe_arms(_tier: str) -> list[Arm]:
    settings_by_arm = {f"probe {n}": {"method": "warp", "bits": 4, "options": {"n_probe": n}} for n in PROBES}
    return _arms(settings_by_arm, SWEPT)


def _judge_probes(outcomes: Outcomes) -> Judgement:
    across = Across(outcomes, SWEPT)
    early, late = across.less("probe 16", "probe 1", "R@100"), across.less("probe 32", "probe 64", "R@100")
    return Judgement(
        f"R@100: 1 to 16 cells {points(early)}, 32 instead of 64 {points(late)} points",
        [
            Check("cells help at first: R@100, 16 - 1", early, unit="points"),
            Check("and stop by 32: R@100, 32 - 64", late, bar=-0.005, unit="points"),
        ],
        figures=[
            Figure(title=f"{measure} by cells probed", x_label="cells probed for a query row (nprobe)", y_label=measure,
                   log_x=True, lines=across.lines([f"probe {n}" for n in PROBES], PROBES, measure))
            for measure in ("nDCG@10", "R@100")
        ],
    )  # fmt: skip


def _prime_arms(_tier: str) -> list[Arm]:
    settings_by_arm = {f"t' {n}": {"method": "warp", "bits": 4, "options": {"t_prime": n}} for n in PRIMES}
    return _arms(settings_by_arm, SWEPT)


def _judge_primes(outcomes: Outcomes) -> Judgement:
    dev, test = (halves(outcomes, SWEPT)[side] for side in (0, 1))
    best = max(PRIMES, key=lambda n: dev.mean(f"t' {n}").value)
    ends = {n: test.less(f"t' {n}", f"t' {best}") for n in PRIMES if 100 <= n <= 10_000}
    narrowest = min(ends, key=lambda n: ends[n].value)
    across = Across(outcomes, SWEPT)
    return Judgement(
        f"best at t' = {best} by half of the queries; over 100 to 10,000 the worst is {points(ends[narrowest])} "
        f"points of "
        f"nDCG@10, at {narrowest:,}",
        [
            Check(
                "within a point of the best over two decades, 100 to 10,000", ends[narrowest], bar=-0.01, unit="points"
            )
        ],
        [
            Table(
                f"nDCG@10 of the other half, against t' = {best}",
                ["t'", "nDCG@10", "difference"],
                [
                    [f"{n:,}", f"{test.mean(f't{chr(39)} {n}').value:.3f}", points(test.less(f"t' {n}", f"t' {best}"))]
                    for n in PRIMES
                ],
            )
        ],
        [
            Figure(
                title="Quality by t', the rows at which the imputed score is taken",
                x_label="t'",
                y_label="nDCG@10",
                log_x=True,
                lines=across.lines([f"t' {n}" for n in PRIMES], PRIMES),
            )
        ],
        [
            (
                "WARP's rule, the root of eight times the rows, is 750 to 870 here. With 128 cells looked at, a t' "
                "above "
                "some 3,000 is taken at the last of them."
            )
        ],
    )


EXPERIMENTS = (
    Experiment(
        id="R1", family="colxtr-warp",
        claim="XTR's scoring survives compression: residual codes cost little.",
        paper="BEIR-13 nDCG@10 46.2 for ColXTR against 49.1 for XTR, 44.8 for ColBERT and 49.9 for ColBERTv2",
        sets=SETS, measure="nDCG@10 beside exact XTR on the same vectors",
        expects="1 to 4 points lost at 1 bit, less than one at 2 bits",
        differs=UNTRAINED + SMALL + "XTR is exact over 8-bit codes, k' = 500. Codes are plait's.",
        minutes=(1, 6), arms=_coded_arms, judge=_judge_coded,
    ),
    Experiment(
        id="R2", family="colxtr-warp",
        claim="The compressed index is 96 to 98% smaller than a flat index in a graph.",
        paper="NQ 860 to 25 GB, NFCorpus 2.4 to 0.091 GB: 96.8% on average",
        sets=SETS, measure="bytes of codes, centroids and postings against flat float32",
        expects="93 to 96% against flat float32; more against a graph index, which has links as well",
        differs=SMALL + "Against flat float32 without a graph's links, and centroids weigh more on small sets.",
        minutes=(1, 3), arms=_size_arms, judge=_judge_size,
    ),
    Experiment(
        id="R3", family="colxtr-warp",
        claim="Ten cells and the best 500 rows for each query row are enough on small sets.",
        paper="ncells 10, k = 500 on small sets (100,000 on large ones)",
        sets=SWEPT, measure="nDCG@10 over sweeps of cells and of rows kept",
        expects="saturates near 4 to 10 cells",
        differs=UNTRAINED + SMALL, minutes=(1, 5), arms=_cells_arms, judge=_judge_cells,
    ),
    Experiment(
        id="W1", family="colxtr-warp",
        claim="WARP is many times faster than XTR's reference, faster than PLAID, and its index is smaller.",
        paper="41x faster than the reference, 3x than PLAID; index 2 to 4x smaller than ScaNN's",
        sets=SETS, measure="time for each query on one thread, as ratios in one run; bytes",
        expects="3 to 10x over XTR that scores every row, at some hundred thousand vectors",
        differs=SMALL + "The paper probes 32 cells of some hundred thousand; of the 2,000 to 4,000 here that is nearly "
        "half of all rows, so both methods have the fewest cells that serve. XTR here is plait's kernel over every "
        "row, not the Python reference; sizes are against float16 vectors, not ScaNN's index.",
        minutes=(1, 6), arms=_speed_arms, judge=_judge_speed,
    ),
    Experiment(
        id="W2", family="colxtr-warp",
        claim="WARP keeps XTR's quality.",
        paper="LoTTE Success@5 69.8 to 70.3, BEIR R@100 60.7 to 61.7",
        sets=SETS, measure="nDCG@10 and R@100 beside exact XTR on the same vectors",
        expects="within a point", differs=UNTRAINED + SMALL + "XTR is exact over 8-bit codes, k' = 500.",
        minutes=(1, 6), arms=_warp_arms, judge=_judge_kept,
    ),
    Experiment(
        id="W3", family="colxtr-warp",
        claim="Four bits instead of two help WARP where few documents are returned.",
        paper="a small gain at small k",
        sets=SETS, measure="nDCG@10", expects="a small gain", differs=UNTRAINED + SMALL + "Codes are plait's.",
        minutes=(1, 6), arms=_warp_arms, judge=_judge_bits,
    ),
    Experiment(
        id="W4", family="colxtr-warp",
        claim="WARP is robust to t', the number of rows at which the imputed score is taken.",
        paper="a flat optimum over the values tried",
        sets=SWEPT, measure="nDCG@10 over a sweep of t'; half of the queries choose the best",
        expects="a flat optimum over two decades",
        differs=UNTRAINED + SMALL, minutes=(1, 4), arms=_prime_arms, judge=_judge_primes,
    ),
    Experiment(
        id="W5", family="colxtr-warp",
        claim="Probing more cells helps up to 16 or 32, and not beyond.",
        paper="gains stop near nprobe 16 to 32",
        sets=SWEPT, measure="nDCG@10 and R@100 over a sweep of nprobe", expects="stops nearer to 8 or 16",
        differs=UNTRAINED + SMALL + "Some 2,000 to 4,000 centroids.",
        minutes=(1, 4), arms=_probe_arms, judge=_judge_probes,
    ),
)  # fmt: skip
