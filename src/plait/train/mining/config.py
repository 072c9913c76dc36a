"""What is mined, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from plait.errors import ConfigError

MARGINS = ("absolute", "percent")
TEACHERS = ("encoder", "cross-encoder")


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningConfig:
    """Hard negatives: documents that rank high for a query and are not known to answer it. No corpus, no mining."""

    corpus: str = ""  # what is searched: a BEIR folder, or JSON lines
    first: str = "bm25"  # who searches in the first round: bm25, model (the one in training), or a folder
    later: str = "model"  # who searches in later rounds
    mode: str = "hybrid"  # how a model searches: dense, multi or hybrid
    rounds: int = 1  # the run is divided into as many equal parts; negatives are mined before each
    first_rank: int = 1  # ranks to take negatives from, from 1
    last_rank: int = 200
    number: int = 15  # negatives of each query, drawn at random from these ranks
    random: int = 0  # more negatives of each query, drawn from the whole corpus: what is easy must stay easy
    teacher: str = ""  # a folder: its scores go beside positives and negatives
    teacher_kind: str = "cross-encoder"
    teacher_length: int = 256  # tokens that the teacher reads of a text, or of a pair
    margin: float = -1.0  # drop negatives whose teacher score is above the positive's less this; below 0: drop none
    margin_kind: str = "absolute"  # or percent: above (1 - margin) times the positive's score

    def __post_init__(self) -> None:
        if not 1 <= self.first_rank <= self.last_rank:
            raise ConfigError(f"ranks {self.first_rank} to {self.last_rank} are none; first_rank begins at 1")
        for name in ("number", "rounds", "teacher_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.random < 0:
            raise ConfigError(f"random is {self.random}; it must be 0 or more")
        if self.margin_kind not in MARGINS:
            raise ConfigError(f"margin_kind is {self.margin_kind!r}; choose one of {', '.join(MARGINS)}")
        if self.teacher_kind not in TEACHERS:
            raise ConfigError(f"teacher_kind is {self.teacher_kind!r}; choose one of {', '.join(TEACHERS)}")
        if self.margin >= 0 and not self.teacher:
            raise ConfigError(
                f"margin is {self.margin}, but there is no teacher to measure it; name one, or leave it out"
            )
        if self.first == "model" and not self.corpus:
            raise ConfigError("first is 'model', but there is no corpus to search; name one")
