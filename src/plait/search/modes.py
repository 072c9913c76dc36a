"""The registry of search modes.

A mode has a name, a params dataclass and a function that builds a `Plan`. A new mode is one file that calls
`register`. BUILT_IN, and `declare` for modes of higher layers, name the module of a mode, so that it is imported only
when it is used. Search, the command line, explanations and documentation tests all read this registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.checks import check_type, shown
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError
from plait.locks import OnceDict
from plait.search.fusion import DEFAULT_BOUNDS, Bounds, bounds_of
from plait.search.params import NoParams, Params, parse_fields
from plait.storage.saved_settings import FittedWeights, TunedParams

if TYPE_CHECKING:
    from plait.search.plan import Plan
    from plait.storage.snapshot import Snapshot

# By mode, the module that registers it.
BUILT_IN = {
    "hybrid": "plait.search.hybrid",
    "dense": "plait.search.dense",
    "sparse": "plait.search.sparse",
    "multi": "plait.search.multivector.plait",
    "bm25": "plait.search.bm25",
    "exhaustive": "plait.search.multivector.exhaustive",
    "plaid": "plait.search.multivector.plaid",
    "xtr": "plait.search.multivector.xtr",
    "colxtr": "plait.search.multivector.colxtr",
    "warp": "plait.search.multivector.warp",
    "dense-then-multi": "plait.search.rescoring",
    "bm25-then-multi": "plait.search.rescoring",
    "m3-dense-sparse": "plait.search.hybrid",
    "m3-all": "plait.search.hybrid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """What a mode knows about the index and the request when it builds a plan."""

    spec: EmbeddingSpec
    k: int | None = None  # documents to return; None: as many as the mode looks at
    exact: bool = False
    n_threads: int = 1
    n_passages: int = 0
    tuned: TunedParams | None = None
    fitted: FittedWeights | None = None
    bounds: Mapping[str, Bounds] = field(default_factory=lambda: DEFAULT_BOUNDS)  # of scores, by kind
    exclude_from_hybrid: Sequence[str] = ()  # kinds that the model excludes from hybrid search by default
    path: Path | None = None  # of the index
    cache: OnceDict[str, Any] = field(default_factory=OnceDict)  # kept between searches: loaded models, tables

    @classmethod
    def of(cls, snapshot: Snapshot, **given: Any) -> PlanContext:
        """The context of a search of this snapshot; `given` are the other fields."""
        return cls(
            spec=snapshot.spec,
            n_passages=snapshot.n_rows,
            tuned=snapshot.tuned.usable,
            fitted=snapshot.weights.fitted,
            bounds=bounds_of(snapshot.calibration.usable),
            path=snapshot.path,
            **given,
        )

    @property
    def kinds(self) -> list[str]:
        """What can be searched: full text, and the kinds of embeddings of the index."""
        return ["bm25", *(kind for kind in ("dense", "sparse", "multi") if getattr(self.spec, kind) is not None)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A way of searching, by name."""

    name: str
    summary: str
    build: Callable[[PlanContext, Any], Plan]
    needs: tuple[str, ...] = ()  # "bm25", "dense", "sparse", "multi"
    params: type[Any] = NoParams
    exact: bool = False  # whether it can score every passage
    exact_candidates: bool = False  # whether candidates that the caller names are all scored
    asks_cross_encoder: bool = False  # within a budget of calls


_registry: dict[str, Mode] = {}
_modules = dict(BUILT_IN)


def declare(modules: Mapping[str, str]) -> None:
    """Says which modules register modes: a module by name of mode."""
    _modules.update(modules)


def register(mode: Mode) -> Mode:
    """Adds a mode; a mode of the same name is replaced."""
    _registry[mode.name] = mode
    return mode


def unregister(name: str) -> None:
    _registry.pop(name, None)


def mode_names() -> list[str]:
    """All names, built-in modes first; imports no module."""
    return [*_modules, *(name for name in _registry if name not in _modules)]


def all_modes() -> list[Mode]:
    return [find_mode(name) for name in mode_names()]


def find_mode(name: str) -> Mode:
    """The mode of this name; ConfigError with the names there are if there is none."""
    check_type("mode", name, str, "the name of a mode", ConfigError)
    if name not in _registry and name in _modules:
        import_module(_modules[name])
    if name not in _registry:
        close = get_close_matches(str(name), mode_names(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ";"
        raise ConfigError(f"there is no mode {shown(name)}{hint} choose one of {', '.join(mode_names())}")
    return _registry[name]


def parse_params(mode: str, words: Mapping[str, object]) -> Any:
    """The mode's params from words, as a command line has them: parse_params("dense", {"n_probe": "4"})."""
    return parse_fields(find_mode(mode).params, words, mode=mode)


@cache
def _default_params(params_class: type) -> Any:
    """Checking the values of every field again for each search would cost more than the rest of making a plan."""
    return params_class()


def resolve(name: str, params: Params | None, context: PlanContext) -> Plan:
    """The plan of a mode, with every number settled: set by the caller, else tuned or fitted for the index, else the
    default for its size."""
    mode = find_mode(name)
    default = _default_params(mode.params)  # type: ignore[arg-type]
    if params is not None and type(params) is not mode.params:
        raise ConfigError(
            f"the params of mode {name!r} are a {mode.params.__name__}; got {type(params).__name__}: {shown(params)}"
        )
    if context.exact and (not mode.exact or params not in (None, default)):
        exact_modes = ", ".join(one.name for one in all_modes() if one.exact)
        raise ConfigError(
            f"exact search has no parameters and is for the modes {exact_modes}; leave out exact, or mode {name!r} or "
            f"its params"
        )
    kinds = context.kinds
    for kind in mode.needs:
        if kind not in kinds:
            raise ConfigError(
                f"mode {name!r} needs {kind} embeddings, which this index does not have; it can be searched as "
                f"{', '.join(['hybrid', *kinds])}"
            )
    return mode.build(context, default if params is None else params)
