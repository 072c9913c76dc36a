"""Recall against budget: every method of search with a cross-encoder, on a complete score matrix.

    python -m benchmarks.cur.matrix path/to/beir --to matrix --model my-cross-encoder
    OPENBLAS_NUM_THREADS=1 python -m benchmarks.cur.recall matrix --to results

Queries are divided into anchors, dev and test. Split, cut and lambda are chosen on dev for each budget and k, and test
queries are measured. "oracle split" is ANNCUR with the best split and cut for the test queries themselves, as the
papers' scripts report it. The truth is the k best of the whole row. Accuracy (the first hit is relevant) and nDCG@10
are those of the setting that dev chose for k = 10. Writes curves.md, curves.json and, with matplotlib, plots.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.cur.figures import draw_curves, draw_scores, tables
from plait.cur.adacur import AdaptiveCur, AdaptiveCurConfig, ScoreScale, fit_scale, retrieve_and_rerank
from plait.cur.algebra import ScoreMatrix, distribution, spectrum
from plait.cur.anncur import Anncur, fit_cur, fit_fixed, random_anchors
from plait.cur.axn import KnownScores, factorize
from plait.cur.calls import Calls, TopItems, top_k_recall

BUDGETS = (10, 50, 100, 200, 500, 1000)
KS = (1, 10, 50, 100)
SPLITS = (0.1, 0.2, 0.3, 0.5, 0.7)
CUTS = (1e-4, 1e-3, 1e-2, 5e-2)
AXN_CUTS = (1e-2,)
MIXES = (0.0, 0.8)
N_DEV = 30
KNOWN = 50  # known items of each anchor query for the factors
ACCURACY, NDCG = "accuracy", "nDCG@10"
DOWNSTREAM_K = 10  # the k whose setting is measured downstream

Search = Callable[[Calls, int, int], TopItems]  # calls, k, number of the query
Orders = Mapping[int, NDArray[np.int64]]  # by query: items, best first
Values = dict[str, float]  # by measure: top_name(k), ACCURACY, NDCG


@dataclass(frozen=True)
class Candidate:
    """A method with one setting. It is built when it is measured: all of them at once would fill the memory."""

    name: str
    setting: str
    make: Callable[[], Search]


@dataclass(frozen=True)
class Data:
    """A matrix in three parts, with dense vectors and other searches."""

    matrix: ScoreMatrix
    scores: NDArray[np.float32]  # all queries
    dev: Sequence[int]
    test: Sequence[int]
    vectors: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]]  # by model: of items, of queries
    firsts: Mapping[str, NDArray[np.integer]]  # by search: (queries, depth), best first; -1 for none
    item_scores: NDArray[np.float32] | None
    item_anchors: NDArray[np.int64] | None
    positives: Sequence[Sequence[int]]  # by query: relevant items

    @property
    def all(self) -> list[int]:
        """Dev and test queries."""
        return [*self.dev, *self.test]

    def first(self, name: str, query: int) -> NDArray[np.int64]:
        """Items by a dense model or another search, best first."""
        if name in self.firsts:
            listed: NDArray[np.int64] = self.firsts[name][query].astype(np.int64)
            return listed[listed >= 0]
        items, queries = self.vectors[name]
        order = np.argsort(-(items @ queries[query]), kind="stable")
        return order.astype(np.int64)


def read(folder: Path, n_anchors: int, n_test: int) -> Data:
    vectors = {
        file.stem.removeprefix("items").removeprefix("-") or "dense": (
            np.load(file),
            np.load(folder / file.name.replace("items", "queries")),
        )
        for file in sorted(folder.glob("items*.npy"))
    }
    n_items = len(vectors["dense"][0])
    scores = np.fromfile(folder / "scores.f32", "<f4")
    scores = scores[: len(scores) // n_items * n_items].reshape(-1, n_items)
    rest = range(n_anchors, len(scores))
    if len(rest) < 2 * N_DEV:
        raise SystemExit(f"{len(scores)} queries are too few for {n_anchors} anchors, {N_DEV} for dev and a test")
    of_items, judged = folder / "item_scores.f32", folder / "positives.json"
    return Data(
        ScoreMatrix(scores[:n_anchors]),
        scores,
        rest[:N_DEV],
        rest[N_DEV : N_DEV + n_test],
        vectors,
        {file.stem.removeprefix("first-"): np.load(file) for file in sorted(folder.glob("first-*.npy"))},
        np.fromfile(of_items, "<f4").reshape(-1, n_items) if of_items.is_file() else None,
        np.load(folder / "item_anchors.npy") if of_items.is_file() else None,
        json.loads(judged.read_text(encoding="utf-8")) if judged.is_file() else [[] for _ in scores],
    )


def top_name(k: int) -> str:
    return f"top-{k}"


def values(data: Data, search: Search, queries: Sequence[int], budget: int) -> Values:
    """Top-k recall for every k, and the measures of the answer, from one search per query."""
    ks = [k for k in KS if k <= budget and k <= data.matrix.n_items]
    judged = [query for query in queries if data.positives[query]]
    sums = dict.fromkeys(map(top_name, ks), 0.0) | (dict.fromkeys((ACCURACY, NDCG), 0.0) if judged else {})
    for query in queries:
        row = data.scores[query]
        calls = Calls(row.__getitem__, budget)
        top = search(calls, max(ks), query)
        assert calls.n_made <= budget
        for k in ks:
            sums[top_name(k)] += top_k_recall(top, row, k) / len(queries)
        for name, value in downstream(top.items, data.positives[query]).items():
            sums[name] += value / len(judged)
    return sums


def downstream(items: NDArray[np.int64], positives: Sequence[int]) -> Values:
    """Whether the first item is relevant, and nDCG@10; empty for a query without judgements."""
    if not positives:
        return {}
    gains = np.isin(items[:10], positives) / np.log2(np.arange(2, 2 + len(items[:10])))
    best = (1 / np.log2(np.arange(2, 2 + min(10, len(positives))))).sum()
    return {ACCURACY: float(len(items) > 0 and items[0] in positives), NDCG: float(gains.sum() / best)}


def candidates(data: Data, budget: int, seed: int) -> Iterator[Candidate]:
    """Every method with every setting that dev may choose."""
    n_items = data.matrix.n_items
    orders: dict[str, Orders] = {
        name: {query: data.first(name, query) for query in data.all} for name in (*data.vectors, *data.firsts)
    }
    for name, order in orders.items():
        yield Candidate(f"rerank {name}", "", partial(reranked, order))
    anchors = random_anchors(n_items, min(budget, n_items), seed=seed)
    for n in _sizes(budget):
        for cut in CUTS:
            yield Candidate("anncur", f"{n} anchors, cut {cut:g}", partial(by_cur, data.matrix, anchors[:n], cut))
    if data.item_scores is not None and data.item_anchors is not None:
        rows, item_anchors = ScoreMatrix(data.item_scores), data.item_anchors
        for n in _sizes(budget):
            if 2 <= n <= rows.n_queries:
                yield Candidate("fixed-item", f"{n} anchors", partial(by_fixed, rows, item_anchors[:n]))
            for cut in CUTS:
                yield Candidate("item-CUR", f"{n} anchors, cut {cut:g}", partial(by_cur, rows, anchors[:n], cut))
    columns, scale = np.ascontiguousarray(data.matrix.values.T), _scale(data)
    at_random = dict.fromkeys(data.all, anchors)
    for cut in CUTS:
        ada = AdaptiveCur(columns, AdaptiveCurConfig(n_rounds=5, rcond=cut, seed=seed))
        yield Candidate("adacur", f"cut {cut:g}", partial(in_rounds, ada, at_random, data))
        for name, order in orders.items():
            yield Candidate(f"adacur, {name} start", f"cut {cut:g}", partial(in_rounds, ada, order, data))
    for name, table in (("axn dense", data.vectors["dense"][0]), ("axn factors", _factors(data, scale))):
        for cut in AXN_CUTS:
            for mix in MIXES:
                axn = AdaptiveCur(table, AdaptiveCurConfig(n_rounds=5, rcond=cut, mix=mix), scale)
                setting = f"cut {cut:g}, mix {mix:g}"
                yield Candidate(name, setting, partial(in_rounds, axn, orders["dense"], data))


def reranked(order: Orders) -> Search:
    return lambda calls, k, query: retrieve_and_rerank(calls, k, first=order[query])


def by_cur(matrix: ScoreMatrix, anchors: NDArray[np.int64], cut: float) -> Search:
    method = Anncur(fit_cur(matrix, anchors, rcond=cut))
    return lambda calls, k, _: method.search(calls, k)


def by_fixed(rows: ScoreMatrix, anchors: NDArray[np.int64]) -> Search:
    method = Anncur(fit_fixed(ScoreMatrix(rows.values[: len(anchors)]), anchors))
    return lambda calls, k, _: method.search(calls, k)


def in_rounds(method: AdaptiveCur, order: Orders, data: Data) -> Search:
    queries = data.vectors["dense"][1]
    return lambda calls, k, query: method.search(calls, k, first=order[query], query=queries[query])


def _sizes(budget: int) -> list[int]:
    """Numbers of anchors."""
    return sorted({max(1, round(split * budget)) for split in SPLITS})


def _scale(data: Data) -> ScoreScale:
    (items, queries), n = data.vectors["dense"], min(100, data.matrix.n_queries)
    return fit_scale(data.matrix.values[:n], queries[:n] @ items.T)


def _factors(data: Data, scale: ScoreScale) -> NDArray[np.float32]:
    """Item vectors from the scores of each anchor query's best items by dense score."""
    n, known = data.matrix.n_queries, min(KNOWN, data.matrix.n_items)
    own_items, own_queries = data.vectors["dense"]
    items = np.concatenate([data.first("dense", query)[:known] for query in range(n)])
    queries = np.repeat(np.arange(n), known)
    scaled = scale.apply(data.matrix.values[queries, items])
    return factorize(KnownScores(queries, items, scaled), own_queries[:n], own_items).items


def measured(data: Data, budget: int, seed: int) -> tuple[dict[str, Values], dict[str, str]]:
    """Test values of every method with the setting that dev chose for each k, and that setting."""
    best: dict[tuple[str, int], tuple[float, Candidate]] = {}
    values_by_method: dict[str, Values] = {"anncur, oracle split": {}}
    for candidate in candidates(data, budget, seed):
        search = candidate.make()
        on_dev = values(data, search, data.dev, budget)
        for k in KS:
            best_so_far = best.get((candidate.name, k))
            if top_name(k) in on_dev and (best_so_far is None or on_dev[top_name(k)] > best_so_far[0]):
                best[candidate.name, k] = on_dev[top_name(k)], candidate
        if candidate.name == "anncur":
            oracle = values_by_method["anncur, oracle split"]
            for name, value in values(data, search, data.test, budget).items():
                if name not in (ACCURACY, NDCG):
                    oracle[name] = max(oracle.get(name, 0.0), value)
    known: dict[int, Values] = {}
    chosen: dict[str, str] = {}
    for (name, k), (_, candidate) in best.items():
        if id(candidate) not in known:
            known[id(candidate)] = values(data, candidate.make(), data.test, budget)
        on_test = known[id(candidate)]
        values_by_method.setdefault(name, {})[top_name(k)] = on_test[top_name(k)]
        chosen[f"{name}, k = {k}"] = candidate.setting
        if k == DOWNSTREAM_K:
            values_by_method[name] |= {measure: on_test[measure] for measure in (ACCURACY, NDCG) if measure in on_test}
    return values_by_method, chosen


def exact(data: Data, query: int) -> NDArray[np.int64]:
    """Items by the cross-encoder, best first."""
    return np.argsort(-data.scores[query], kind="stable").astype(np.int64)


def without_calls(data: Data) -> dict[str, Values]:
    """Accuracy and nDCG@10 of exact search, and of the other searches without the cross-encoder."""
    ways: dict[str, Callable[[int], NDArray[np.int64]]] = {"exact cross-encoder": partial(exact, data)}
    for name in (*data.vectors, *data.firsts):
        ways[f"{name} alone"] = partial(data.first, name)
    judged = [query for query in data.test if data.positives[query]]
    values_by_method: dict[str, Values] = {}
    for name, way in ways.items():
        each = [downstream(way(query)[:10], data.positives[query]) for query in judged]
        values_by_method[name] = (
            {measure: float(np.mean([one[measure] for one in each])) for measure in (ACCURACY, NDCG)} if each else {}
        )
    return values_by_method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrix", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--anchor-queries", type=int, default=200)
    parser.add_argument("--test-queries", type=int, default=100)
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = read(options.matrix, options.anchor_queries, options.test_queries)
    options.to.mkdir(parents=True, exist_ok=True)
    about = json.loads((options.matrix / "about.json").read_text(encoding="utf-8"))
    shape, spread = spectrum(data.scores), distribution(data.scores)
    curves: dict[int, dict[str, Values]] = {}
    chosen: dict[int, dict[str, str]] = {}
    for budget in options.budgets:
        if budget <= data.matrix.n_items:
            curves[budget], chosen[budget] = measured(data, budget, options.seed)
            print(f"{budget} calls are measured", flush=True)
    ranks = ", ".join(f"{n} at {threshold:g}" for threshold, n in shape.ranks.items())
    head = (
        f"{about['data']}, {about['model']}: {data.matrix.n_items:,} items, {data.matrix.n_queries} anchor queries, "
        f"{len(data.dev)} for dev, {len(data.test)} test queries.\nRank {ranks}; 99% of the energy in "
        f"{shape.energy_rank}; skewness {spread.skewness:.2f}, kurtosis {spread.kurtosis:.2f}."
    )
    measures = [top_name(k) for k in KS if k <= max(curves)] + [ACCURACY, NDCG]
    page = "\n\n".join([head, *tables(curves, measures, without_calls(data))])
    print(page)
    (options.to / "curves.md").write_text(page + "\n", encoding="utf-8")
    record = {"about": about, "spectrum": asdict(shape), "distribution": asdict(spread), "curves": curves}
    (options.to / "curves.json").write_text(json.dumps(record | {"chosen": chosen}, indent=1), encoding="utf-8")
    try:
        draw_curves(curves, [top_name(k) for k in KS if k <= max(curves)], options.to / "curves.png")
        draw_scores({about["model"]: data.scores}, options.to / "scores.png")
    except ImportError:
        print("pictures are left out: they need matplotlib")


if __name__ == "__main__":
    main()
