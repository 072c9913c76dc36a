"""Quality of projections that are fitted to a collection: nDCG@10 of exact MaxSim in floats.

    python -m benchmarks.quality.projection --graph gte-small --cache states --develop adi --report cacm cisi

`--graph` is a folder with tokenizer.json and onnx/model.onnx or model.onnx, whose output last_hidden_state is the whole
state of each token. States are computed once and kept in `--cache` as float16. Each set is a BEIR folder. Sets of
`--develop` are for choosing a setting and are tabled apart; those of `--report` are the result, with a paired
randomisation test against the whole states, corrected (Holm) over sets and settings. `--mixed` names further sets,
whose tokens make the other corpus and whose documents double a set. A set has one of the three roles.

    python -m benchmarks.quality.projection --through-index --data data --sets adi cacm --models gte-states --work work

measures the projections of `plait.Projection` instead: through the index, with its codec and its default plan, beside
whole vectors that are compressed alike. `--models` are bundled models or model folders, such as one of `plait convert
--token-states`. See benchmarks/quality/projection_index.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from benchmarks.quality.projection_index import run_sets, tables
from benchmarks.quality.token_states import EncoderStates, GraphStates, SetStates, read_states
from plait.embeddings import MultiVectors, Rows
from plait.encode.load import load_model
from plait.evaluate import Dataset, load_beir, measure_each
from plait.evaluate.significance import corrected, randomisation_test
from plait.scoring.maxsim import top_k

MEASURE, K = "nDCG@10", 10
DIMS = (64, 96, 128, 192)
SAMPLES = (1_000, 10_000, 100_000)
MAIN_DIM = 128
FULL_SAMPLE = 100_000  # tokens that a projection is fitted to, unless the setting says otherwise
WHOLE, GROWN = "whole states", "doubled: whole states"
Floats = NDArray[np.float32]
PerQuery = Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """x -> (x - mean) @ directions, normalised to length 1."""

    mean: Floats  # (dim,)
    directions: Floats  # (dim, kept)

    def apply(self, rows: Rows) -> Floats:
        return unit(((rows - self.mean) @ self.directions).astype(np.float32))


def unit(rows: Rows) -> Floats:
    """Rows of length 1; a row of zeros stays."""
    values = rows.astype(np.float32)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    values /= np.where(lengths > 0, lengths, np.float32(1))
    return values


def fit(sample: Floats, dim: int | None, *, whitening: float = 0.0) -> Projection:
    """The mean and the `dim` principal directions of a sample (tokens, dim); None keeps the space as it is.

    Each direction is divided by its standard deviation to the power `whitening`: 0 leaves lengths as they are, 1 makes
    all variances equal. Directions without variance are dropped.
    """
    if len(sample) < 2:
        raise ValueError(f"a projection is fitted to 2 tokens or more; got {len(sample)}")
    if not 0 <= whitening <= 1:
        raise ValueError(f"whitening is {whitening}; it must be from 0 to 1")
    mean = sample.mean(axis=0, dtype=np.float64)
    if dim is None and not whitening:
        return Projection(mean.astype(np.float32), np.eye(sample.shape[1], dtype=np.float32))
    centred = sample - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / len(sample))
    order = np.argsort(values)[::-1][:dim]
    order = order[values[order] > 1e-9 * values.max()]
    scales = np.sqrt(values[order]) ** -whitening
    return Projection(mean.astype(np.float32), (vectors[:, order] * scales).astype(np.float32))


def draw(rows: Rows, n: int, *, seed: int) -> Floats:
    """At most n rows, drawn without replacement."""
    if len(rows) <= n:
        return rows.astype(np.float32)
    chosen = np.sort(np.random.default_rng(seed).choice(len(rows), n, replace=False))
    return rows[chosen].astype(np.float32)


def half_of(states: MultiVectors, *, seed: int) -> Rows:
    """The tokens of a random half of the passages."""
    order = np.random.default_rng(seed).permutation(len(states))[: max(1, len(states) // 2)]
    return np.concatenate([states[item] for item in np.sort(order).tolist()])


def ladder(collection: MultiVectors, other: Rows, *, seed: int = 0) -> dict[str, Callable[[], Projection]]:
    """By name, how each projection is fitted. `other` are tokens of another corpus; may be empty."""
    rows = collection.values
    full = draw(rows, FULL_SAMPLE, seed=seed)
    settings: dict[str, Callable[[], Projection]] = {"centred": lambda: fit(full, None)}
    for dim in DIMS:
        settings[f"own directions, {dim}"] = lambda dim=dim: fit(full, dim)  # type: ignore[misc]
    for n in SAMPLES[:-1]:
        settings[f"own directions, {MAIN_DIM}, {n:,} tokens"] = (
            lambda n=n: fit(draw(rows, n, seed=seed), MAIN_DIM)  # type: ignore[misc]
        )
    settings["whitened, all dimensions"] = lambda: fit(full, None, whitening=1.0)
    settings[f"whitened, {MAIN_DIM}"] = lambda: fit(full, MAIN_DIM, whitening=1.0)
    settings[f"half whitened, {MAIN_DIM}"] = lambda: fit(full, MAIN_DIM, whitening=0.5)
    if len(other):
        settings[f"directions of the other corpus, {MAIN_DIM}"] = lambda: fit(
            draw(other, FULL_SAMPLE, seed=seed), MAIN_DIM
        )
    return settings


def judge(
    states: SetStates,
    judged: Dataset,
    projection: Projection | None,
    n_threads: int,
    query_projection: Projection | None = None,
) -> PerQuery:
    """nDCG@10 of each query, by exact MaxSim; without a projection the states are only normalised. Queries have the
    projection of documents, unless they are given another."""
    apply = unit if projection is None else projection.apply
    apply_to_queries = apply if query_projection is None else query_projection.apply
    queries = MultiVectors(apply_to_queries(states.queries.values), states.queries.offsets)
    documents = MultiVectors(apply(states.documents.values), states.documents.offsets)
    run = {}
    for number, query in enumerate(states.query_ids):
        scores = plait.maxsim(queries[number], documents, n_threads=n_threads)
        run[query] = [(states.document_ids[item], float(scores[item])) for item in top_k(scores, K).tolist()]
    return measure_each(run, judged.qrels, [MEASURE])[MEASURE]


def doubled(states: SetStates, other: MultiVectors) -> SetStates:
    """The set with as many documents of another corpus added, which answer no query; fewer if there are fewer."""
    n_added = min(len(states.documents), len(other))
    collection, end = states.documents, int(other.offsets[n_added])
    values = np.concatenate([collection.values, other.values[:end]])
    offsets = np.concatenate([collection.offsets, collection.offsets[-1] + other.offsets[1 : n_added + 1]])
    ids = [*states.document_ids, *(f"other corpus {number}" for number in range(n_added))]
    return SetStates(states.query_ids, states.queries, ids, MultiVectors(values, offsets))


def rows_of_set(
    states: SetStates, judged: Dataset, other: MultiVectors | None, trained: SetStates | None, n_threads: int
) -> dict[str, PerQuery]:
    """By setting, nDCG@10 of each query."""
    other_rows = np.zeros((0, states.documents.dim), np.float32) if other is None else other.values
    scores_by_setting = {WHOLE: judge(states, judged, None, n_threads)}
    for name, make in ladder(states.documents, other_rows).items():
        scores_by_setting[name] = judge(states, judged, make(), n_threads)
    both = fit(draw(states.documents.values, FULL_SAMPLE, seed=0), MAIN_DIM)
    uncentred = Projection(np.zeros_like(both.mean), both.directions)
    scores_by_setting[f"own directions, {MAIN_DIM}, queries not centred"] = judge(
        states, judged, both, n_threads, query_projection=uncentred
    )
    scores_by_setting[f"own directions, {MAIN_DIM}, neither side centred"] = judge(states, judged, uncentred, n_threads)
    if trained is not None:
        scores_by_setting["trained projection of the bundled model"] = judge(trained, judged, None, n_threads)
    if other is not None:
        grown = doubled(states, other)
        half = draw(half_of(states.documents, seed=0), FULL_SAMPLE, seed=0)
        again = draw(grown.documents.values, FULL_SAMPLE, seed=0)
        scores_by_setting[GROWN] = judge(grown, judged, None, n_threads)
        scores_by_setting[f"doubled: directions of half of the set, {MAIN_DIM}"] = judge(
            grown, judged, fit(half, MAIN_DIM), n_threads
        )
        scores_by_setting[f"doubled: directions fitted again, {MAIN_DIM}"] = judge(
            grown, judged, fit(again, MAIN_DIM), n_threads
        )
    return scores_by_setting


def table(by_set: Mapping[str, Mapping[str, PerQuery]]) -> str:
    """A markdown table: a row for each setting, a column for each set, and * where the corrected p is below 0.05. Rows
    of doubled sets are compared with the whole states of the doubled set."""
    names = list(by_set)
    settings = list(dict.fromkeys(setting for scores_by_setting in by_set.values() for setting in scores_by_setting))
    pairs = [(name, setting) for name in names for setting in by_set[name] if setting not in (WHOLE, GROWN)]
    p = [_p_value(by_set[name][setting], by_set[name][_baseline(setting)]) for name, setting in pairs]
    differs = dict(zip(pairs, (corrected(p, "holm") < 0.05).tolist(), strict=True)) if p else {}
    lines = [f"| setting | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for setting in settings:
        cells = []
        for name in names:
            each = by_set[name].get(setting)
            mark = " *" if differs.get((name, setting)) else ""
            cells.append("" if each is None else f"{np.mean(list(each.values())):.4f}{mark}")
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _baseline(setting: str) -> str:
    return GROWN if setting.startswith("doubled: ") else WHOLE


def _p_value(one: PerQuery, other: PerQuery) -> float:
    differences = np.array([[one[query] - other[query]] for query in other])
    return float(randomisation_test(differences)[0])


def check_sets(develop: Sequence[Path], report: Sequence[Path], mixed: Sequence[Path]) -> None:
    """ValueError if a set has two roles, by its resolved folder."""
    seen: dict[Path, str] = {}
    for role, folders in (("--develop", develop), ("--report", report), ("--mixed", mixed)):
        for folder in folders:
            before = seen.setdefault(folder.resolve(), role)
            if before != role:
                raise ValueError(f"{folder} is in {before} and in {role}; a set has one role")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--develop", type=Path, nargs="*", default=[])
    parser.add_argument("--report", type=Path, nargs="*", default=[])
    parser.add_argument("--mixed", type=Path, nargs="*", default=[])
    parser.add_argument("--split", default="test")
    parser.add_argument("--trained", default="", help="a bundled model or model folder to compare with")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--through-index", action="store_true", help="measure the index itself")
    parser.add_argument("--data", type=Path, default=Path(), help="the folder that has the sets of --sets")
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--dims", type=int, nargs="*", default=list(DIMS))
    parser.add_argument("--work", type=Path, help="where indexes of whole vectors are kept")
    options = parser.parse_args()
    if options.through_index:
        if not options.sets or not options.models or options.work is None:
            parser.error("--through-index needs --sets, --models and --work")
        through_index(options)
        return
    if options.graph is None or options.cache is None:
        parser.error("the ladder in floats needs --graph and --cache")
    try:
        check_sets(options.develop, options.report, options.mixed)
    except ValueError as error:
        parser.error(str(error))
    if not options.develop and not options.report:
        parser.error("name one set or more with --develop or --report")
    graph = GraphStates(options.graph, n_threads=options.threads)
    trained = EncoderStates(load_model(options.trained)) if options.trained else None
    mixed = [read_states(load_beir(folder, options.split), graph, options.cache).documents for folder in options.mixed]
    other = shuffled(mixed, seed=0) if mixed else None
    for title, folders in (("Development sets", options.develop), ("Reported sets", options.report)):
        by_set: dict[str, dict[str, PerQuery]] = {}
        for folder in folders:
            judged = load_beir(folder, options.split)
            states = read_states(judged, graph, options.cache)
            own_trained = None if trained is None else read_states(judged, trained, options.cache)
            by_set[folder.name] = rows_of_set(states, judged, other, own_trained, options.threads)
        if by_set:
            print(f"{title}: {MEASURE}; * differs from {WHOLE} (p < 0.05, Holm)\n\n{table(by_set)}\n", flush=True)


def through_index(options: argparse.Namespace) -> None:
    sets = [load_beir(options.data / name, options.split) for name in options.sets]
    for model in options.models:
        results = run_sets(sets, model, options.dims, options.work, options.threads)
        print(f"{model}: {MEASURE}; * differs from whole vectors (p < 0.05, Holm)\n\n{tables(results)}\n", flush=True)


def shuffled(corpora: Sequence[MultiVectors], *, seed: int) -> MultiVectors:
    """The documents of all corpora in random order, so that any first part of them is a mixture."""
    items = [corpus[item] for corpus in corpora for item in range(len(corpus))]
    order = np.random.default_rng(seed).permutation(len(items)).tolist()
    return MultiVectors.from_items([items[number] for number in order])


if __name__ == "__main__":
    main()
