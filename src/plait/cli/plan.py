"""A tuned plan for people: what searches do, and what that was measured to reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.storage.tuned_params import SavedParams, TunedParams

GROWN = 2  # times as many passages as were tuned for: worth saying
_KINDS = {
    "given": "queries that were given",
    "words": "queries made of words of the documents",
    "rows": "queries made of stored vectors",
}


def plan_lines(read: SavedParams, n_passages: int) -> list[str]:
    """Nothing for an index that was not tuned."""
    if read.damage:
        return [f"damaged ({read.damage}): defaults are used; run plait tune anew, or with --reset"]
    plan = read.params
    if plan is None:
        return []
    lines = [
        _settings(plan),
        f"recall {plan.recall:.3f} at {plan.k}, for {plan.target_recall:g} asked, of {_of(plan)}",
        f"{plan.median_ms:.2f} ms a query, the median; exhaustive search takes {plan.exhaustive_ms:.2f}",
        f"measured on {plan.n_queries} {_KINDS.get(plan.queries, plan.queries)}, {plan.date}",
    ]
    if plan.codes_recall is not None:
        kept = f"the codes keep {plan.codes_recall:.3f} of the vectors' best"
        lines.append(f"{kept}, and the search {plan.recall_in_codes:.3f} of the codes' best")
    if plan.stale:
        lines.append(f"stale: {plan.stale} since, and defaults are used; run plait tune again")
    elif n_passages > GROWN * plan.n_passages:
        lines.append(f"tuned for {plan.n_passages:,} passages, and there are {n_passages:,} now; run plait tune again")
    return lines


def _settings(plan: TunedParams) -> str:
    if plan.exhaustive:
        return "every passage is scored: nothing faster reaches the recall"
    return f"n_probe {plan.n_probe}, n_candidates {plan.n_candidates}, n_code_scored {plan.n_code_scored}, n_rescored {plan.n_rescored}"


def _of(plan: TunedParams) -> str:
    if plan.recall_of == "vectors":
        return "what exhaustive search finds by the vectors as they were"
    return "what exhaustive search finds by the codes (what they lose of the vectors is not in it)"
