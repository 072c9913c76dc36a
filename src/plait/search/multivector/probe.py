"""How far a probed multi-vector search looks: what the caller set, else what was tuned for the index, else what suits
its size and k. Each parameter is resolved by itself.

The numbers of this page were measured: see the tuning and updates pages of the documentation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from plait.errors import ConfigError
from plait.search.params import check_choice, check_counts, check_types
from plait.search.retriever import MAX, PASSAGES
from plait.storage.saved_settings import TunedParams

# The defaults for BASE_PASSAGES passages and BASE_K documents. They find about nine in ten of what exhaustive search
# finds. Candidates grow with the root of the number of passages, and with the root of k.
BASE_PASSAGES, BASE_K = 10_000, 10
BASE_PROBE, BASE_CANDIDATES, BASE_CODE_SCORED, BASE_RESCORED = 16, 700, 320, 32
GROWTH_BY_SIZE, GROWTH_BY_K = 0.5, 0.5
DEFAULT_PRUNE_MARGIN = 0.01
# Under a filter: up to SCORE_ALL * n_code_scored passages are all scored; up to SKIP_CELLS * n_candidates are all
# compared by centroids, without reading cells. A filter that accepts MOST of the rows changes nothing.
SCORE_ALL, SKIP_CELLS, MOST = 1.0, 9.0, 0.75
# The best passages that a filter leaves may be farther from the query than the best of all, where centroids say less:
# more passages and more of their rows are scored by codes, and the rarer they are, the more cells are read.
FILTERED_CODE_SCORED, FILTERED_CANDIDATES, FILTERED_PRUNE_MARGIN = 1.4, 3.0, 0.03
PROBE_BY_SHARE = 0.25
# In a list beside others: the most cells for each query row, and the most candidates and code-scored passages for each
# document of the list. The other lists find most of what this one misses.
LIST_PROBE, LIST_CANDIDATES, LIST_CODE_SCORED = 8, 16, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeParams:
    """Parameters of mode `multi`. None: as tuned for the index, or by its size and k."""

    n_probe: int | None = None  # cells read for each query vector
    n_candidates: int | None = None  # passages that are compared by the centroids of all their vectors
    n_code_scored: int | None = None  # of those, passages that are scored by their codes
    n_rescored: int | None = None  # of those, passages whose every vector is scored, by 8-bit codes if there are any
    prune_margin: float | None = None  # vectors whose centroid is this far below the best are not scored; 0.5: all are
    passages: str = MAX  # how passages make the score of their document: "max" or "top3"

    def __post_init__(self) -> None:
        check_types(self)
        check_counts(self, "n_probe", "n_candidates", "n_code_scored", "n_rescored")
        if self.prune_margin is not None and not self.prune_margin >= 0:
            raise ConfigError(f"prune_margin is {self.prune_margin}; it must be 0 or more")
        check_choice("passages", self.passages, PASSAGES)

    @property
    def probing(self) -> dict[str, float]:
        """The parameters of probing that are set."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "passages"}
        return {name: value for name, value in values.items() if value is not None}


DEFAULT_PROBE_PARAMS = ProbeParams()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedProbe:
    """How far to look in each stage; see `plait.search.multivector.plait`."""

    n_probe: int
    n_candidates: int
    n_code_scored: int
    n_rescored: int
    prune_margin: float = DEFAULT_PRUNE_MARGIN
    exhaustive: bool = False  # every passage is scored
    skip_cells: bool = False  # every passage is compared by centroids, no cells are read
    fixed: frozenset[str] = frozenset()  # parameters that the caller set: a filter does not change them

    def under_filter(self, n_accepted: int, n_rows: int) -> ResolvedProbe:
        """The same where a filter accepts `n_accepted` of `n_rows` passages."""
        if n_accepted >= MOST * n_rows or self.exhaustive:
            return self
        if not self.fixed and n_accepted <= SCORE_ALL * self.n_code_scored:
            return replace(self, exhaustive=True)
        wider = {
            "n_probe": math.ceil(self.n_probe * (n_accepted / n_rows) ** -PROBE_BY_SHARE),
            "n_candidates": math.ceil(FILTERED_CANDIDATES * self.n_candidates),
            "n_code_scored": math.ceil(FILTERED_CODE_SCORED * self.n_code_scored),
            "prune_margin": max(FILTERED_PRUNE_MARGIN, self.prune_margin),
        }
        skip_cells = not self.fixed and n_accepted <= SKIP_CELLS * self.n_candidates
        changes = {name: value for name, value in wider.items() if name not in self.fixed}
        return replace(self, skip_cells=skip_cells, **changes)


def resolve_probe(
    params: ProbeParams, *, n_passages: int, k: int, tuned: TunedParams | None = None, list_depth: int | None = None
) -> ResolvedProbe:
    """The parameters of a search for k documents: each from `params`, else from the tuned plan, else by size.

    `list_depth` is the depth of this list when it is fused with other lists; its first k documents matter most.
    """
    if tuned is not None:
        resolved = scale_for_k(_from_tuned(tuned), k / tuned.k)
    else:
        resolved = probe_by_size(n_passages, k)
        if list_depth is not None:
            resolved = probe_for_list(resolved, list_depth)
    caller = params.probing
    if not caller:
        return resolved
    # A caller who sets how to probe wants it done, also where tuning found that scoring every passage is as fast.
    return replace(resolved, exhaustive=False, fixed=frozenset(caller), **caller)  # type: ignore[arg-type]


def probe_by_size(n_passages: int, k: int) -> ResolvedProbe:
    """The defaults for an index that was not tuned."""
    growth = max(1.0, n_passages / BASE_PASSAGES) ** GROWTH_BY_SIZE
    grown = ResolvedProbe(
        n_probe=BASE_PROBE,
        n_candidates=math.ceil(BASE_CANDIDATES * growth),
        n_code_scored=math.ceil(BASE_CODE_SCORED * growth),
        n_rescored=BASE_RESCORED,
    )
    return scale_for_k(grown, k / BASE_K)


def probe_for_list(probe: ResolvedProbe, n_documents: int) -> ResolvedProbe:
    """The parameters for a list of `n_documents` beside other lists."""
    return replace(
        probe,
        n_probe=min(probe.n_probe, LIST_PROBE),
        n_candidates=min(probe.n_candidates, LIST_CANDIDATES * n_documents),
        n_code_scored=min(probe.n_code_scored, LIST_CODE_SCORED * n_documents),
    )


def scale_for_k(probe: ResolvedProbe, times: float) -> ResolvedProbe:
    """The parameters for `times` as many documents; for fewer documents they stay."""
    if times <= 1:
        return probe
    growth = times**GROWTH_BY_K
    return replace(
        probe,
        n_candidates=math.ceil(probe.n_candidates * growth),
        n_code_scored=math.ceil(probe.n_code_scored * growth),
        n_rescored=math.ceil(probe.n_rescored * times),
    )


def _from_tuned(tuned: TunedParams) -> ResolvedProbe:
    return ResolvedProbe(
        n_probe=tuned.n_probe,
        n_candidates=tuned.n_candidates,
        n_code_scored=tuned.n_code_scored,
        n_rescored=tuned.n_rescored,
        exhaustive=tuned.exhaustive,
    )
