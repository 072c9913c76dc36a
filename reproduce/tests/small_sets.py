"""Small generated BEIR folders, and experiments that take no time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from plait_reproduce.datasets import Cut
from plait_reproduce.experiment import Arm, Experiment, Figure, Judgement, Line, Outcome, Settings, Table
from plait_reproduce.verdict import Check, difference
from plait_reproduce.workbench import Workbench

TOPICS = {
    "weather": "rain storm cloud wind snow thunder sun frost fog drizzle",
    "kitchen": "bread oven flour butter recipe soup knife salt dough spice",
    "music": "violin chord melody drum concert choir piano rhythm opera song",
    "rivers": "stream bridge flood delta boat current bank water mill ferry",
}


def write_set(folder: Path, *, n_documents: int = 24, seed: int = 0) -> None:
    """Documents of eight words of one topic each; a query asks for two words of a document."""
    random = np.random.default_rng(seed)
    documents, queries, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for number in range(n_documents):
        topic = list(TOPICS)[number % len(TOPICS)]
        words = random.choice(TOPICS[topic].split(), 8, replace=False)
        documents.append({"_id": f"d{number}", "title": topic, "text": " ".join(words)})
        if number % 2 == 0:
            queries.append({"_id": f"q{number}", "text": " ".join(words[:2])})
            qrels.append(f"q{number}\td{number}\t1")
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels" / "test.tsv").write_text("\n".join(qrels) + "\n")


def sets(*names: str) -> dict[str, Cut]:
    return {name: Cut(folder=name, documents=(20, 24), queries=(8, 12)) for name in names}


class Counted:
    """Arms that count how often they were run, and stop on request."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.stop_at: str | None = None

    def run(self, workbench: Workbench, settings: Settings) -> Outcome:
        del workbench
        if settings["name"] == self.stop_at:
            raise KeyboardInterrupt
        self.ran.append(settings["name"])
        values = {f"q{number}": settings["value"] + number / 100 for number in range(10)}
        return Outcome({"nDCG@10": values}, {"bytes": 10.0})

    def experiment(self, id: str = "C3") -> Experiment:
        arms = [Arm(name, self.run, {"name": name, "value": value}) for name, value in (("a", 0.5), ("b", 0.7))]
        return Experiment(
            id=id, family="colbert", claim="b | more is more than a.", paper="0.1 better", sets=(), measure="nDCG@10",
            expects="b above a", differs="Everything.", minutes=(1, None), arms=lambda _tier: arms, judge=_judge,
        )  # fmt: skip


def _judge(outcomes: Mapping[str, Outcome]) -> Judgement:
    gain = difference(outcomes["b"].each["nDCG@10"], outcomes["a"].each["nDCG@10"])
    return Judgement(
        f"{gain.value:+.2f}",
        [Check("b - a", gain, unit="points")],
        [Table("Bytes", ["arm", "bytes"], [["a", "10"], ["b", "10"]])],
        [Figure(title="A & B", y_label="y", x_label="x", lines=[Line("a", [1, 2], [0.1, 0.2], [0, 0.1], [0.2, 0.3])])],
        ["Made up."],
    )
