"""README.md of a model folder, written from the records of the run and the checks of the export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plait.encode.model_card import ModelCard
from plait.train.export.parity import MAX_DIFFERENCE, MEASURE, MIN_COSINE, Parity, Ranking
from plait.train.export.trained import Trained
from plait.train.run_folder import versions

UNSTATED = "not stated"


@dataclass(frozen=True, slots=True)
class Checks:
    """The results of the checks of an export."""

    fp32: Parity  # the fp32 graph compared with torch
    int8: Parity | None  # int8 compared with fp32
    ranking: Ranking | None


def model_page(card: ModelCard, trained: Trained, checks: Checks, *, date: str) -> str:
    """The page, in Markdown."""
    parts = [f"# {card.name}", _embeddings(card), _facts(card, date), _training(trained), _checks(checks)]
    if trained.recipe is not None:
        parts += ["## Recipe", f"```toml\n{trained.recipe.toml().strip()}\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _embeddings(card: ModelCard) -> str:
    lines = ["One pass gives these embeddings:", ""]
    if card.dense:
        known = {"mean": "the mean of the token states", "cls": "the state of the first token"}
        pooled = known.get(card.dense.pooling, f"pooling {card.dense.pooling}")
        lines.append(f"- `dense`: {card.dense.dim} dimensions, {pooled};")
    if card.sparse:
        more = ", where words with one stem are one term" if card.sparse.forms else ""
        if card.sparse.length_norm:
            more += f"; the weights of a passage are divided by their sum to the power {card.sparse.length_norm:g}"
        if card.sparse.query_tf:
            more += f"; a term that a query repeats counts {card.sparse.query_tf:g} by the sum of its weights"
        more += "; not used in hybrid search unless it is given a weight" if card.sparse.exclude_from_hybrid else ""
        lines.append(f"- `sparse`: a weight for each token, over {card.sparse.vocabulary:,} terms{more};")
    if card.multi:
        rows = "a vector for each token"
        if card.multi.fixed:
            rows = f"{card.multi.fixed} vectors for each document and a vector for each token of a query"
        lines.append(f"- `multi`: {rows}, {card.multi.dim} dimensions, scored by MaxSim;")
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
        return "\n".join([*lines, "There are no records of the run."])
    of_all = next((f" of {line['step']:,}" for line in reversed(trained.curves) if "loss" in line), "")
    lines.append(f"Loss: {recipe.loss.get('name', UNSTATED)}. Weights of step {about.get('step', 0):,}{of_all}.")
    sources = [
        [source.label, source.kind, source.split if source.kind == "beir" else "", source.licence or UNSTATED]
        for source in recipe.data
    ]
    lines += [
        "",
        "Data, with licences as stated in the recipe:",
        "",
        _table(["source", "kind", "split", "licence"], sources),
    ]
    lines += ["", *_curves(trained)]
    used = {
        **trained.versions,
        **{f"{name} (export)": value for name, value in _changed_versions(trained.versions).items()},
    }
    if used:
        lines += ["", "Versions: " + ", ".join(f"{name} {value}" for name, value in used.items()) + "."]
    return "\n".join(lines)


def _curves(trained: Trained) -> list[str]:
    losses = [line for line in trained.curves if "loss" in line]
    measured = [line for line in trained.curves if "value" in line]
    sentences = []
    if losses:
        last = losses[-1]
        parts = ", ".join(f"{name} {value:.4g}" for name, value in last.get("parts", {}).items())
        sentences.append(f"Last loss, at step {last['step']:,}: {last['loss']:.4f}{f' ({parts})' if parts else ''}.")
    if measured:
        last, best = measured[-1], max(measured, key=lambda line: float(line["value"]))
        where = ", ".join(str(trained.about[key]) for key in ("mode", "split") if key in trained.about)
        sentences.append(
            f"{last['measure']} while training{f' ({where})' if where else ''}: {last['value']:.4f} at step "
            f"{last['step']:,}, at best {best['value']:.4f} at step {best['step']:,}."
        )
    return sentences


def _changed_versions(before: Mapping[str, str]) -> dict[str, str]:
    """Versions at export that differ from those of the training."""
    return {name: value for name, value in versions().items() if before.get(name) not in (None, value)}


def _checks(checks: Checks) -> str:
    lines = [
        "## Checks",
        "",
        f"The fp32 graph compared with torch on {checks.fp32.n_texts} texts; at most {MAX_DIFFERENCE:.0e} is allowed:",
        "",
        _table(
            ["embedding", "largest difference"],
            [[name, f"{seen.largest:.1e}"] for name, seen in checks.fp32.embeddings.items()],
        ),
    ]
    if checks.int8 is not None:
        lines += [
            "",
            f"int8 compared with fp32 on the same texts; a mean cosine of at least {MIN_COSINE} is required:",
            "",
            _table(
                ["embedding", "mean cosine", "largest difference"],
                [[name, f"{seen.cosine:.4f}", f"{seen.largest:.1e}"] for name, seen in checks.int8.embeddings.items()],
            ),
        ]
    if checks.ranking is None:
        return "\n".join([*lines, "", "The effect of int8 on ranking was not measured (`plait export --data`)."])
    ranking = checks.ranking
    embeddings = list(next(iter(ranking.values.values())))
    rows: list[list[Any]] = [
        [precision, *(f"{values[kind]:.4f}" for kind in embeddings)] for precision, values in ranking.values.items()
    ]
    title = f"{MEASURE} on {ranking.data} ({ranking.split}, {ranking.n_queries:,} queries), exhaustive search:"
    return "\n".join([*lines, "", title, "", _table(["precision", *embeddings], rows)])


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(head + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])
