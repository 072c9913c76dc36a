"""`plait info`."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from plait.cli.fitting import weight_lines
from plait.cli.options import AsJson, IndexPath
from plait.cli.plan import plan_lines

if TYPE_CHECKING:
    from plait.storage.info import StoreInfo


def info(index: IndexPath, as_json: AsJson = False) -> None:
    """Show what an index holds: documents, size on disk, model.

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
    shape = dataclasses.asdict(facts.spec)
    rows = facts.pooling or f"{facts.spec.fixed} rows a passage, by the model"
    pooling = [("pooling", rows)] if facts.pooling or facts.spec.fixed else []
    del shape["fixed"]
    return [
        ("path", str(facts.path)),
        ("documents", f"{facts.documents:,}"),
        ("passages", f"{facts.passages:,}"),
        ("segments", f"{facts.segments:,}"),
        ("deleted rows", f"{facts.deleted_rows:,} ({facts.deleted_share:.1%} of all)"),
        ("size", size(facts.bytes)),
        *((f"  {part}", size(n_bytes)) for part, n_bytes in facts.bytes_by_part.items()),
        ("memory", _memory(facts)),
        (
            "embeddings",
            ", ".join(_strand(name, width, facts) for name, width in shape.items() if width is not None) or "none",
        ),
        *pooling,
        *([("language", facts.language)] if facts.language else []),
        *_drift(facts),
        ("model", str(facts.properties.get("model", "none: vectors are brought by the caller"))),
        ("fingerprint", facts.fingerprint),
        ("format", str(facts.format)),
        ("created", facts.created),
        *(("tuned" if not number else "", line) for number, line in enumerate(plan_lines(facts.tuned, facts.passages))),
        *(("weights" if not number else "", line) for number, line in enumerate(weight_lines(facts.weights))),
    ]


def _strand(name: str, width: int, facts: StoreInfo) -> str:
    apart = (
        "; hybrid leaves it out unless it is given a weight"
        if name in facts.properties.get("exclude_from_hybrid", ())
        else ""
    )
    return f"{name} ({width:,}{apart})"


def _memory(facts: StoreInfo) -> str:
    """What a search maps; a process that searches has as much of it in memory as it has read."""
    mapped = f"{size(facts.bytes - facts.bytes_by_part['catalogue'])} mapped when it is searched"
    return mapped if facts.resident is None else f"{mapped}, {size(facts.resident)} of it in this process"


def _drift(facts: StoreInfo) -> list[tuple[str, str]]:
    if facts.drift is None:
        return []
    n_vectors, ratio = facts.drift.n_vectors, facts.drift.ratio
    return [("drift", f"{n_vectors:,} vectors that came since lose {ratio:.2f} times what the first ones did")]


def size(n_bytes: float) -> str:
    """Bytes as people say them: 999 bytes, 1.5 kB, 23 MB."""
    if n_bytes < 1000:
        return f"{n_bytes:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        n_bytes /= 1000
        if n_bytes < 999.5:
            return f"{n_bytes:.3g} {unit}"
    return f"{n_bytes / 1000:,.3g} TB"
