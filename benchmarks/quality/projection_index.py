"""Fitted projections through the real index: the codec, the default plan, and the calibrated hybrid search.

Each set is indexed once for each model, with whole vectors and without a compaction, and kept in `--work`. For each
setting that index is copied, compacted with the projection and searched; so all settings have the same vectors, and
documents are encoded once. `plait.Projection` does the work: this is what users get.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import plait
from plait.codec.projection import Projection
from plait.encode.load import load_model
from plait.encode.protocol import Encoder
from plait.errors import InputError
from plait.evaluate import Dataset, measure_each
from plait.evaluate.rank import rank_queries
from plait.evaluate.significance import corrected, randomisation_test

MEASURE, K = "nDCG@10", 10
MODES = ("multi", "hybrid")
WHOLE = "whole vectors"
PerQuery = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SettingResult:
    """One setting on one set."""

    scores: Mapping[str, PerQuery]  # nDCG@10 of each query, by mode
    bytes_per_vector: float
    energy: float | None  # the share that the projection keeps


def settings_for(width: int, dims: Sequence[int]) -> dict[str, Projection | None]:
    """By name, the projections to try. All dimensions with centring tell what centring alone does."""
    named = {f"fitted, {number}": number for number in dims if number < width}
    named["centred, all dimensions"] = width
    fits_small_sets = {name: Projection(dims=number, min_vectors=number) for name, number in named.items()}
    return {WHOLE: None, **fits_small_sets}


def base_index(judged: Dataset, encoder: Encoder, path: Path, n_threads: int) -> Path:
    """The index of a set with whole vectors; made now unless it is there."""
    if judged.corpus is None:
        raise InputError(f"{judged.name} has no corpus to index")
    if not path.exists():
        draft = path.with_name(f"{path.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        with plait.open(draft, create=True, encoder=encoder, n_threads=n_threads) as index:
            index.add_files(judged.corpus)
        draft.rename(path)
    return path


def measure_setting(
    base: Path, judged: Dataset, encoder: Encoder, projection: Projection | None, n_threads: int
) -> SettingResult:
    """Copies the index, compacts the copy with a projection, and searches it for all queries."""
    with tempfile.TemporaryDirectory(dir=base.parent) as folder:
        path = Path(shutil.copytree(base, Path(folder) / "index"))
        with plait.open(path, encoder=encoder, n_threads=n_threads) as index:
            report = index.compact(projection=projection or False)
            ids = list(judged.queries)
            scores = {}
            for mode in MODES:
                rankings = rank_queries(index, list(judged.queries.values()), K, mode=mode)
                run = dict(zip(ids, rankings, strict=True))
                scores[mode] = measure_each(run, judged.qrels, [MEASURE])[MEASURE]
    return SettingResult(scores, report.bytes_per_vector or 0.0, report.energy)


def run_sets(
    sets: Sequence[Dataset], model: str, dims: Sequence[int], work: Path, n_threads: int
) -> dict[str, dict[str, SettingResult]]:
    """By set and setting."""
    encoder = load_model(model, n_threads=n_threads)
    width = encoder.spec.multi
    if width is None:
        raise InputError(f"{model} has no multi vectors to project; name one that has them")
    folder = work / encoder.fingerprint.replace(":", "-").replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, SettingResult]] = {}
    for judged in sets:
        base = base_index(judged, encoder, folder / f"{judged.name}", n_threads)
        results[judged.name] = {}
        for name, projection in settings_for(width, dims).items():
            result = measure_setting(base, judged, encoder, projection, n_threads)
            results[judged.name][name] = result
            means = ", ".join(f"{mode} {np.mean(list(scores.values())):.4f}" for mode, scores in result.scores.items())
            print(f"{judged.name}, {name}: {means}; {_cost(result)}", file=sys.stderr, flush=True)
    return results


def tables(results: Mapping[str, Mapping[str, SettingResult]]) -> str:
    """A markdown table for each mode: a row for each setting, a column for each set, * where it differs from whole
    vectors (paired randomisation test, p < 0.05, Holm over all cells of the mode); then bytes and energy."""
    names = list(results)
    settings = list(next(iter(results.values())))
    shown = []
    for mode in MODES:
        scores = {(name, setting): results[name][setting].scores[mode] for name in names for setting in settings}
        pairs = [pair for pair in scores if pair[1] != WHOLE]
        p = [_p_value(scores[pair], scores[pair[0], WHOLE]) for pair in pairs]
        differs = dict(zip(pairs, (corrected(p, "holm") < 0.05).tolist(), strict=True)) if p else {}
        lines = [f"| {mode} | {' | '.join(names)} | mean |", f"|---|{'---:|' * (len(names) + 1)}"]
        for setting in settings:
            means = [float(np.mean(list(scores[name, setting].values()))) for name in names]
            marks = [" *" if differs.get((name, setting)) else "" for name in names]
            cells = [f"{mean:.4f}{mark}" for mean, mark in zip(means, marks, strict=True)]
            lines.append(f"| {setting} | {' | '.join(cells)} | {np.mean(means):.4f} |")
        shown.append("\n".join(lines))
    lines = [f"| bytes a vector; energy | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for setting in settings:
        cells = [_cost(results[name][setting]) for name in names]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    return "\n\n".join([*shown, "\n".join(lines)])


def _cost(result: SettingResult) -> str:
    energy = "" if result.energy is None else f"; {result.energy:.1%}"
    return f"{result.bytes_per_vector:.1f}{energy}"


def _p_value(one: PerQuery, other: PerQuery) -> float:
    differences = np.array([[one[query] - other[query]] for query in other])
    return float(randomisation_test(differences)[0])
