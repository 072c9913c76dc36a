"""Recall against budget: every way to search with a cross-encoder, on a score matrix that is known whole.

    python benchmarks/cur_matrix.py path/to/beir --to matrix --model my-cross-encoder
    OPENBLAS_NUM_THREADS=1 python benchmarks/cur.py matrix --to results

Queries are divided into anchors, dev and test. Split, cut and lambda are chosen on dev for each budget and k, and test
queries are measured; "oracle split" is ANNCUR with the best split and cut for the test queries themselves, as the
papers' scripts report it. The truth is the k best by the whole row. Writes curves.md, curves.json and, with matplotlib,
pictures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.cross.cur.anchors import random_anchors
from plait.cross.cur.anncur import Anncur, fit_cur, fit_fixed
from plait.cross.cur.calls import Calls, Found
from plait.cross.cur.factors import KnownScores, factorise
from plait.cross.cur.matrix import ScoreMatrix
from plait.cross.cur.measures import distribution, spectrum, top_k_recall
from plait.cross.cur.rounds import InRounds, RoundsConfig, retrieve_and_rerank
from plait.cross.cur.scale import ScoreMap, fit_scale

BUDGETS = (10, 50, 100, 200, 500, 1000)
KS = (1, 10, 50, 100)
SPLITS = (0.1, 0.2, 0.3, 0.5, 0.7)
CUTS = (1e-4, 1e-3, 1e-2, 5e-2)
MIXES = (0.0, 0.8)
N_DEV = 30
KNOWN = 50  # items of each anchor query that the factors know the scores of

Search = Callable[[Calls, int, int], Found]  # calls, k, number of the query
Recalls = dict[int, float]  # by k


@dataclass(frozen=True)
class Data:
    """A matrix in three parts, with dense vectors."""

    matrix: ScoreMatrix
    scores: NDArray[np.float32]  # all queries
    dev: Sequence[int]
    test: Sequence[int]
    items: NDArray[np.float32]
    queries: NDArray[np.float32]
    item_scores: NDArray[np.float32] | None
    item_anchors: NDArray[np.int64] | None

    def first(self, query: int) -> NDArray[np.int64]:
        """Items by dense score, best first."""
        return np.argsort(-(self.items @ self.queries[query]), kind="stable").astype(np.int64)


def read(folder: Path, n_anchors: int, n_test: int) -> Data:
    items, queries = np.load(folder / "items.npy"), np.load(folder / "queries.npy")
    scores = np.fromfile(folder / "scores.f32", "<f4").reshape(-1, len(items))
    rest = range(n_anchors, len(scores))
    if len(rest) < 2 * N_DEV:
        raise SystemExit(f"{len(scores)} queries are too few for {n_anchors} anchors, {N_DEV} for dev and a test")
    of_items = folder / "item_scores.f32"
    return Data(
        ScoreMatrix(scores[:n_anchors]),
        scores,
        rest[:N_DEV],
        rest[N_DEV : N_DEV + n_test],
        items,
        queries,
        np.fromfile(of_items, "<f4").reshape(-1, len(items)) if of_items.is_file() else None,
        np.load(folder / "item_anchors.npy") if of_items.is_file() else None,
    )


def recalls(data: Data, search: Search, queries: Sequence[int], budget: int) -> Recalls:
    """Top-k-Recall for every k, from one search of each query."""
    ks = [k for k in KS if k <= budget and k <= data.matrix.n_items]
    sums = dict.fromkeys(ks, 0.0)
    for query in queries:
        row = data.scores[query]
        calls = Calls(row.__getitem__, budget)
        found = search(calls, max(ks), query)
        assert calls.made <= budget
        for k in ks:
            sums[k] += top_k_recall(found, row, k) / len(queries)
    return sums


def with_anchors(method: Anncur) -> Search:
    return lambda calls, k, _: method.search(calls, k)


def in_rounds(method: InRounds, first: Callable[[int], NDArray[np.int64]], data: Data) -> Search:
    return lambda calls, k, query: method.search(calls, k, first=first(query), query=data.queries[query])


def candidates(data: Data, budget: int, seed: int) -> Iterator[tuple[str, Search]]:
    """Every method with every setting that dev may choose."""
    orders = {query: data.first(query) for query in (*data.dev, *data.test)}
    yield "rerank dense", lambda calls, k, query: retrieve_and_rerank(calls, k, first=orders[query])
    anchors = random_anchors(data.matrix.n_items, min(budget, data.matrix.n_items), seed=seed)
    for n in _sizes(budget):
        for cut in CUTS:
            yield "anncur", with_anchors(Anncur(fit_cur(data.matrix, anchors[:n], cut=cut)))
    if data.item_scores is not None and data.item_anchors is not None:
        rows = ScoreMatrix(data.item_scores)
        for n in _sizes(budget):
            if 2 <= n <= rows.n_queries:
                yield "fixed-item", with_anchors(Anncur(fit_fixed(ScoreMatrix(rows.values[:n]), data.item_anchors[:n])))
            for cut in CUTS:
                yield "item-CUR", with_anchors(Anncur(fit_cur(rows, anchors[:n], cut=cut)))
    columns, scale = np.ascontiguousarray(data.matrix.values.T), _scale(data)
    factors = _factors(data, scale)
    for cut in CUTS:
        ada = InRounds(columns, RoundsConfig(n_rounds=5, cut=cut, seed=seed))
        yield "adacur", in_rounds(ada, lambda _: anchors, data)
        yield "adacur, dense start", in_rounds(ada, orders.__getitem__, data)
        for name, table in (("axn dense", data.items), ("axn factors", factors)):
            for mix in MIXES:
                axn = InRounds(table, RoundsConfig(n_rounds=5, cut=cut, mix=mix), scale)
                yield name, in_rounds(axn, orders.__getitem__, data)


def _sizes(budget: int) -> list[int]:
    """Numbers of anchors."""
    return sorted({max(1, round(split * budget)) for split in SPLITS})


def _scale(data: Data) -> ScoreMap:
    n = min(100, data.matrix.n_queries)
    return fit_scale(data.matrix.values[:n], data.queries[:n] @ data.items.T)


def _factors(data: Data, scale: ScoreMap) -> NDArray[np.float32]:
    """Item vectors from the scores of each anchor query's best items by dense score."""
    n, known = data.matrix.n_queries, min(KNOWN, data.matrix.n_items)
    items = np.concatenate([data.first(query)[:known] for query in range(n)])
    queries = np.repeat(np.arange(n), known)
    scaled = scale.of(data.matrix.values[queries, items])
    return factorise(KnownScores(queries, items, scaled), data.queries[:n], data.items).items


def measured(data: Data, budget: int, seed: int) -> dict[str, Recalls]:
    """Test recall of every method, each with what dev chose for that k."""
    best: dict[tuple[str, int], tuple[float, float]] = {}  # method, k -> dev, test
    oracle: Recalls = {}
    for name, search in candidates(data, budget, seed):
        on_dev, on_test = (recalls(data, search, own, budget) for own in (data.dev, data.test))
        for k, value in on_dev.items():
            if (name, k) not in best or value > best[name, k][0]:
                best[name, k] = value, on_test[k]
            if name == "anncur":
                oracle[k] = max(oracle.get(k, 0.0), on_test[k])
    found: dict[str, Recalls] = {}
    for (name, k), (_, value) in best.items():
        found.setdefault(name, {})[k] = value
    return {**found, "anncur, oracle split": oracle}


def table(curves: Mapping[int, Mapping[str, Recalls]], k: int) -> str:
    budgets = [budget for budget in curves if budget >= k]
    names = list(dict.fromkeys(name for own in curves.values() for name in own))
    head = "| method | " + " | ".join(map(str, budgets)) + " |"
    lines = [f"Top-{k}-Recall by calls", "", head, "|---" * (len(budgets) + 1) + "|"]
    for name in names:
        values = [curves[budget].get(name, {}).get(k) for budget in budgets]
        lines.append(f"| {name} | " + " | ".join("" if value is None else f"{value:.3f}" for value in values) + " |")
    return "\n".join(lines)


def draw(curves: Mapping[int, Mapping[str, Recalls]], data: Data, to: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    ks = [k for k in KS if k <= max(curves)]
    figure, row = pyplot.subplots(1, len(ks), figsize=(4 * len(ks), 4), sharey=True, squeeze=False)
    axes = row[0]
    for k, axis in zip(ks, axes, strict=True):
        for name in dict.fromkeys(name for own in curves.values() for name in own):
            points = [(budget, own[name][k]) for budget, own in curves.items() if k in own.get(name, {})]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=name)
        axis.set(title=f"Top-{k}-Recall", xlabel="calls of the cross-encoder", xscale="log", ylim=(0, 1.02))
    axes[-1].legend(fontsize=7)
    figure.savefig(to / "curves.png", dpi=120, bbox_inches="tight")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 4))
    left.hist(data.scores.ravel(), bins=100, log=True)
    left.set(title="scores", xlabel="score", ylabel="pairs")
    values = np.linalg.svd(data.scores.astype(np.float64), compute_uv=False)
    right.semilogy(values / values[0])
    right.set(title="singular values", xlabel="number", ylabel="part of the largest")
    figure.savefig(to / "scores.png", dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrix", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--anchor-queries", type=int, default=200)
    parser.add_argument("--test-queries", type=int, default=100)
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    data = read(given.matrix, given.anchor_queries, given.test_queries)
    given.to.mkdir(parents=True, exist_ok=True)
    about = json.loads((given.matrix / "about.json").read_text(encoding="utf-8"))
    shape, spread = spectrum(data.scores), distribution(data.scores)
    curves = {budget: measured(data, budget, given.seed) for budget in given.budgets if budget <= data.matrix.n_items}
    ranks = ", ".join(f"{n} at {threshold:g}" for threshold, n in shape.ranks.items())
    head = (
        f"{about['data']}, {about['model']}: {data.matrix.n_items:,} items, {data.matrix.n_queries} anchor queries, "
        f"{len(data.test)} test queries.\nRank {ranks}; 99% of the energy in {shape.energy_rank}; skewness "
        f"{spread.skewness:.2f}, kurtosis {spread.kurtosis:.2f}."
    )
    page = "\n\n".join([head, *(table(curves, k) for k in KS if k <= max(curves))])
    print(page)
    (given.to / "curves.md").write_text(page + "\n", encoding="utf-8")
    kept = {"about": about, "spectrum": asdict(shape), "distribution": asdict(spread), "curves": curves}
    (given.to / "curves.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
    try:
        draw(curves, data, given.to)
    except ImportError:
        print("pictures are left out: they need matplotlib")


if __name__ == "__main__":
    main()
