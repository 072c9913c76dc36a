"""`plait info`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from plait.cli.options import AsJson, IndexPath

if TYPE_CHECKING:
    from plait.storage.info import StoreInfo
    from plait.storage.saved_settings import SavedParams, SavedWeights, TunedParams

GROWTH_WORTH_TUNING = 2  # times as many passages as the parameters were tuned for
QUERY_SOURCES = {
    "given": "queries that were given",
    "words": "queries made of words of the documents",
    "rows": "queries made of stored vectors",
}


def info(index: IndexPath, as_json: AsJson = False) -> None:
    """Print the documents, sizes, model and tuning of an index.

    \b
    Example:
      plait info my-index
    """
    import plait

    with plait.open(index, read_only=True) as opened:
        facts = opened.info()
    if as_json:
        print(json.dumps(dataclasses.asdict(facts), default=str))
        return
    lines = _lines(facts)
    width = max(len(label) for label, _ in lines)
    for label, value in lines:
        print(f"{label:<{width}}  {value}")


def _lines(facts: StoreInfo) -> list[tuple[str, str]]:
    rows = facts.pooling or f"{facts.spec.fixed} rows a passage, by the model"
    tuned = params_lines(facts.tuned, facts.passages)
    weights = weight_lines(facts.weights)
    return [
        ("path", str(facts.path)),
        ("documents", f"{facts.documents:,}"),
        ("passages", f"{facts.passages:,}"),
        ("segments", f"{facts.segments:,}"),
        ("deleted rows", f"{facts.deleted_passages:,} ({facts.deleted_share:.1%} of all)"),
        ("size", describe_size(facts.bytes)),
        *((f"  {part}", describe_size(n_bytes)) for part, n_bytes in facts.bytes_by_part.items()),
        ("log", _log(facts)),
        ("memory", _memory(facts)),
        ("embeddings", ", ".join(_kind(kind, size, facts) for kind, size in facts.spec.sizes().items()) or "none"),
        *([("chunking", facts.chunking)] if facts.chunking else []),
        *([("pooling", rows)] if facts.pooling or facts.spec.fixed else []),
        *_projection(facts),
        *([("language", facts.language)] if facts.language else []),
        *_drift(facts),
        ("model", str(facts.properties.get("model", "none: the caller makes the vectors"))),
        ("fingerprint", facts.fingerprint),
        ("format", str(facts.format)),
        ("created", facts.created),
        *(("tuned" if not number else "", line) for number, line in enumerate(tuned)),
        *(("weights" if not number else "", line) for number, line in enumerate(weights)),
        ("scores", _calibration(facts)),
    ]


def _calibration(facts: StoreInfo) -> str:
    """What `min_score="auto"` rests on."""
    saved = facts.calibration
    if saved.damage:
        return f"damaged ({saved.damage}): defaults are used; run plait compact"
    if saved.usable is None:
        return "not calibrated: defaults are used; run plait compact"
    if saved.usable.unrelated_mean is None:
        return "calibrated for the model; too few documents to measure unrelated queries"
    return (
        f"unrelated queries score {saved.usable.unrelated_mean:.2f} ± {saved.usable.unrelated_deviation:.2f}, measured "
        f"on {saved.usable.n_documents:,} documents, {saved.usable.date}"
    )


def _kind(kind: str, size: int, facts: StoreInfo) -> str:
    is_excluded = kind in facts.properties.get("exclude_from_hybrid", ())
    note = "; excluded from hybrid search unless it is given a weight" if is_excluded else ""
    return f"{kind} ({size:,}{note})"


def _memory(facts: StoreInfo) -> str:
    """The size of the files that searches map; a process keeps in memory what it has read of them."""
    mapped = f"{describe_size(facts.bytes - facts.bytes_by_part['catalogue'])} mapped when it is searched"
    return (
        mapped
        if facts.resident_bytes is None
        else f"{mapped}, {describe_size(facts.resident_bytes)} of it in this process"
    )


def _log(facts: StoreInfo) -> str:
    """The size of SQLite's log, a part of the catalogue, and the reader that keeps it from shrinking."""
    size, reader = describe_size(facts.log.nbytes), facts.log.oldest_reader
    if reader is None:
        return size
    behind = f"process {reader.pid} reads a state of {describe_size(reader.bytes_behind)} ago"
    return f"{size}; {behind}, and the log keeps what came since" if facts.log.nbytes else size


def _projection(facts: StoreInfo) -> list[tuple[str, str]]:
    """The projection of the multi vectors, and how well it fits those that came later."""
    fitted = facts.projection
    if fitted is None:
        wanted = facts.wanted_projection
        return [("projection", f"to {wanted}, when plait compact finds enough vectors")] if wanted else []
    from plait.storage.projections import is_outdated

    energy = f"{fitted.energy.share:.1%} of the energy of {fitted.energy.n_vectors:,} vectors"
    lines = [("projection", f"{fitted.width} to {fitted.dims} dimensions; they keep {energy} that they were fitted to")]
    if fitted.later.n_vectors:
        later = f"{fitted.later.share:.1%} of the energy of {fitted.later.n_vectors:,} vectors added later"
        advice = "; fit it again with plait compact --refit" if is_outdated(fitted) else ""
        lines.append(("", f"and {later}{advice}"))
    return lines


def _drift(facts: StoreInfo) -> list[tuple[str, str]]:
    if facts.drift is None:
        return []
    n_vectors, ratio = facts.drift.n_vectors, facts.drift.ratio
    return [("drift", f"{n_vectors:,} vectors added later lose {ratio:.2f} times what the first ones did")]


def describe_size(n_bytes: float) -> str:
    """Bytes for people: 999 bytes, 1.5 kB, 23 MB."""
    if n_bytes < 1000:
        return f"{n_bytes:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        n_bytes /= 1000
        if n_bytes < 999.5:
            return f"{n_bytes:.3g} {unit}"
    return f"{n_bytes / 1000:,.3g} TB"


# -- tuned parameters and fitted weights; `plait tune` prints them too


def params_lines(read: SavedParams, n_passages: int) -> list[str]:
    """The tuned parameters and the recall measured with them; no lines for an index that was not tuned."""
    if read.damage:
        return [f"damaged ({read.damage}): defaults are used; run plait tune again, or plait tune --reset"]
    params = read.params
    if params is None:
        return []
    lines = [
        _describe_params(params),
        f"recall {params.recall:.3f} at {params.k}, for {params.target_recall:g} asked, of {_describe_target(params)}",
        f"{params.median_ms:.2f} ms a query, the median; exhaustive search takes {params.exhaustive_ms:.2f}",
        f"measured on {params.n_queries} {QUERY_SOURCES.get(params.queries, params.queries)}, {params.date}",
    ]
    if params.codes_recall is not None:
        codes = f"the codes keep {params.codes_recall:.3f} of the vectors' best"
        lines.append(f"{codes}, and the search {params.recall_in_codes:.3f} of the codes' best")
    if params.stale:
        lines.append(f"stale: {params.stale} since, and defaults are used; run plait tune again")
    elif n_passages > GROWTH_WORTH_TUNING * params.n_passages:
        lines.append(
            f"tuned for {params.n_passages:,} passages, and there are {n_passages:,} now; run plait tune again"
        )
    return lines


def _describe_params(params: TunedParams) -> str:
    if params.exhaustive:
        return "every passage is scored: nothing faster reaches the recall"
    names = ("n_probe", "n_candidates", "n_code_scored", "n_rescored")
    return ", ".join(f"{name} {getattr(params, name)}" for name in names)


def _describe_target(params: TunedParams) -> str:
    if params.recall_of == "vectors":
        return "what exhaustive search finds by the original vectors"
    return "what exhaustive search finds by the codes (without what the codes lose of the vectors)"


def weight_lines(read: SavedWeights) -> list[str]:
    """The fitted fusion weights and their nDCG@10; no lines for an index whose weights were not fitted."""
    if read.damage:
        return [f"damaged ({read.damage}): defaults are used; run plait tune --fusion again, or plait tune --reset"]
    fitted = read.fitted
    if fitted is None:
        return []
    return [
        f"{describe_weights(fitted.weights)} ({fitted.fusion})",
        f"nDCG@10 {fitted.ndcg:.4f}, with default weights {fitted.default_ndcg:.4f}, on {fitted.data}, {fitted.date}",
    ]


def describe_weights(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {weight:g}" for kind, weight in weights.items())
