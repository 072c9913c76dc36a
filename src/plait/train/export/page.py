"""The model card for people: README.md of a model folder, from what the run says of itself and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plait.encode.model_card import ModelCard
from plait.train.export.parity import LEAST_COSINE, MEASURE, TOLERANCE, Parity, Ranking
from plait.train.export.trained import Trained
from plait.train.run_folder import versions

UNSTATED = "not stated"


@dataclass(frozen=True, slots=True)
class Checks:
    """What was measured when the model was exported."""

    fp32: Parity  # the graph against torch
    int8: Parity | None  # int8 against fp32
    ranking: Ranking | None


def model_page(card: ModelCard, trained: Trained, checks: Checks, *, date: str) -> str:
    """The page, in Markdown."""
    parts = [f"# {card.name}", _strands(card), _facts(card, date), _training(trained), _checks(checks)]
    if trained.recipe is not None:
        parts += ["## Recipe", f"```toml\n{trained.recipe.toml().strip()}\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _strands(card: ModelCard) -> str:
    lines = ["One pass gives these strands:", ""]
    if card.dense:
        pooled = {"mean": "the mean of the token states", "cls": "the state of the first token"}[card.dense.pooling]
        lines.append(f"- `dense`: {card.dense.dim} dimensions, {pooled};")
    if card.sparse:
        more = ", forms of a word being one" if card.sparse.forms else ""
        if card.sparse.length_norm:
            more += f"; the weights of a passage are divided by their sum to the power {card.sparse.length_norm:g}"
        if card.sparse.query_tf:
            more += f"; of a term that a query repeats, {card.sparse.query_tf:g} counts by the sum of its weights"
        more += "; hybrid search leaves it out unless it is given a weight" if card.sparse.exclude_from_hybrid else ""
        lines.append(f"- `sparse`: a weight for each token, of {card.sparse.vocabulary:,} terms{more};")
    if card.multi:
        rows = "a row for each token"
        if card.multi.fixed:
            rows = f"{card.multi.fixed} rows for each document and a row for each token of a query"
        lines.append(f"- `multi`: {rows}, of {card.multi.dim} dimensions, scored by MaxSim;")
    lines[-1] = lines[-1].rstrip(";") + "."
    return "\n".join(lines)


def _facts(card: ModelCard, date: str) -> str:
    files = ", ".join(f"{record.bytes / 1e6:.1f} MB ({name})" for name, record in card.precisions.items())
    reads = f"{card.query.length} tokens of a query, {card.document.length} of a passage; passages overlap by "
    return _table(
        ["", ""],
        [
            ["Source", card.source],
            ["Licence", card.licence],
            ["Attribution", card.attribution],
            ["Languages", ", ".join(card.languages) or UNSTATED],
            ["Reads", f"{reads}{card.document.overlap}"],
            ["Size", files],
            ["Made by", f"`{card.made}`, {date}"],
        ],
    )


def _training(trained: Trained) -> str:
    about, recipe = trained.about, trained.recipe
    lines = ["## Training", "", f"Backbone: {trained.model.config.backbone}."]
    if recipe is None:
        return "\n".join([*lines, "There is no record of a run beside these weights."])
    of_all = next((f" of {line['step']:,}" for line in reversed(trained.curves) if "loss" in line), "")
    lines.append(
        f"Objective: {recipe.objective.get('name', UNSTATED)}. Weights of step {about.get('step', 0):,}{of_all}."
    )
    sources = [
        [source.label, source.kind, source.split if source.kind == "beir" else "", source.licence or UNSTATED]
        for source in recipe.data
    ]
    lines += [
        "",
        "Data, with licences as the recipe names them:",
        "",
        _table(["source", "kind", "split", "licence"], sources),
    ]
    lines += ["", *_curves(trained)]
    used = {**trained.versions, **{f"{name} (export)": value for name, value in _exporter(trained.versions).items()}}
    if used:
        lines += ["", "Versions: " + ", ".join(f"{name} {value}" for name, value in used.items()) + "."]
    return "\n".join(lines)


def _curves(trained: Trained) -> list[str]:
    losses = [line for line in trained.curves if "loss" in line]
    measured = [line for line in trained.curves if "value" in line]
    found = []
    if losses:
        last = losses[-1]
        parts = ", ".join(f"{name} {value:.4g}" for name, value in last.get("parts", {}).items())
        found.append(f"Last loss, at step {last['step']:,}: {last['loss']:.4f}{f' ({parts})' if parts else ''}.")
    if measured:
        last, best = measured[-1], max(measured, key=lambda line: float(line["value"]))
        where = ", ".join(str(trained.about[key]) for key in ("mode", "split") if key in trained.about)
        found.append(
            f"{last['measure']} while training{f' ({where})' if where else ''}: {last['value']:.4f} at step "
            f"{last['step']:,}, at best {best['value']:.4f} at step {best['step']:,}."
        )
    return found


def _exporter(before: Mapping[str, str]) -> dict[str, str]:
    """Versions that differ from those of the training."""
    return {name: value for name, value in versions().items() if before.get(name) not in (None, value)}


def _checks(checks: Checks) -> str:
    lines = [
        "## Checks",
        "",
        f"The fp32 graph against torch, {checks.fp32.n_texts} texts; at most {TOLERANCE:.0e} is allowed:",
        "",
        _table(
            ["strand", "largest difference"],
            [[name, f"{seen.largest:.1e}"] for name, seen in checks.fp32.embeddings.items()],
        ),
    ]
    if checks.int8 is not None:
        lines += [
            "",
            f"int8 against fp32, the same texts; a mean cosine of {LEAST_COSINE} is the least allowed:",
            "",
            _table(
                ["strand", "mean cosine", "largest difference"],
                [[name, f"{seen.cosine:.4f}", f"{seen.largest:.1e}"] for name, seen in checks.int8.embeddings.items()],
            ),
        ]
    if checks.ranking is None:
        return "\n".join([*lines, "", "What rounding costs in ranks was not measured (`plait export --data`)."])
    ranking = checks.ranking
    embeddings = list(next(iter(ranking.values.values())))
    rows: list[list[Any]] = [
        [precision, *(f"{values[kind]:.4f}" for kind in embeddings)] for precision, values in ranking.values.items()
    ]
    title = f"{MEASURE} on {ranking.data} ({ranking.split}, {ranking.n_queries:,} queries); all texts are scored:"
    return "\n".join([*lines, "", title, "", _table(["precision", *embeddings], rows)])


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(head + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])
