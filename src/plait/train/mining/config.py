"""The section `mining` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from plait.errors import ConfigError
from plait.train.search_modes import check_mode

MARGINS = ("absolute", "percent")
TEACHERS = ("encoder", "cross-encoder")


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningConfig:
    """Hard negatives: documents that rank high for a query and are not known to answer it. No corpus, no mining."""

    corpus: str = ""  # the corpus to search: a BEIR folder, or JSON lines
    first_searcher: str = "bm25"  # what searches in the first round: bm25, model (in training), or a model folder
    later_searcher: str = "model"  # what searches in later rounds
    mode: str = "hybrid"  # the search mode of a model; the modes are those of [evaluation]
    rounds: int = 1  # the run is divided into this many equal parts; negatives are mined before each
    first_rank: int = 1  # ranks from which negatives are drawn, counted from 1
    last_rank: int = 200
    n_negatives: int = 15  # negatives of each query, drawn at random from these ranks
    n_random: int = 0  # further negatives of each query, drawn from the whole corpus: easy ones must stay easy
    teacher: str = ""  # a model folder whose scores are saved for positives and negatives
    teacher_kind: str = "cross-encoder"
    teacher_length: int = 256  # the maximum number of tokens that the teacher reads of a text, or of a pair
    margin: float = -1.0  # drop negatives whose teacher score exceeds the positive's minus this; below 0: drop none
    margin_kind: str = "absolute"  # or percent: drop scores above (1 - margin) times the positive's

    def __post_init__(self) -> None:
        if not 1 <= self.first_rank <= self.last_rank:
            raise ConfigError(
                f"first_rank is {self.first_rank} and last_rank is {self.last_rank}; the first must be at least 1 and "
                f"at most the last"
            )
        for name in ("n_negatives", "rounds", "teacher_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        check_mode(self.mode)
        if self.n_random < 0:
            raise ConfigError(f"n_random is {self.n_random}; it must be 0 or more")
        if self.margin_kind not in MARGINS:
            raise ConfigError(f"margin_kind is {self.margin_kind!r}; choose one of {', '.join(MARGINS)}")
        if self.teacher_kind not in TEACHERS:
            raise ConfigError(f"teacher_kind is {self.teacher_kind!r}; choose one of {', '.join(TEACHERS)}")
        if self.margin >= 0 and not self.teacher:
            raise ConfigError(f"margin is {self.margin}, but there is no teacher; name one, or leave margin out")
        if self.first_searcher == "model" and not self.corpus:
            raise ConfigError("first_searcher is 'model', but there is no corpus to search; name one")
