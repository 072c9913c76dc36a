"""`BeirFolderTask`: a data set on disk as a retrieval task of MTEB. Nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset as Table
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata

from plait.evaluate.datasets import Dataset, load_dataset

EXACT = "exact_"  # prefix of measures that are not rounded


class BeirFolderTask(AbsTaskRetrieval):
    """A BEIR or MS MARCO folder, an ir_datasets id (irds:NAME) or a loaded `plait.evaluate.Dataset`.

    `drop_self` leaves out documents with the id of the query. MTEB rounds its measures to five digits; beside them,
    the results have `exact_ndcg_at_10` and others without rounding, as means over all judged queries.
    """

    data_loaded: bool  # False in the base class

    metadata = TaskMetadata(
        name="BeirFolder",
        description="A data set on disk.",
        dataset={"path": "local/folder", "revision": "1"},
        type="Retrieval",
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )

    def __init__(
        self,
        data: str | Path | Dataset,
        split: str = "test",
        *,
        drop_self: bool = False,
        languages: list[str] | None = None,
        **base: Any,
    ) -> None:
        judged = data if isinstance(data, Dataset) else load_dataset(data, split)
        self.judged, self.ignore_identical_ids = judged, drop_self
        self.metadata = self.metadata.model_copy(
            update={
                "name": judged.name,
                "eval_splits": [judged.split],
                "eval_langs": languages or ["eng-Latn"],
                "dataset": {"path": f"local/{judged.name}", "revision": "1"},
            }
        )
        super().__init__(**base)

    def load_data(self, num_proc: int | None = None, **_options: Any) -> None:
        del num_proc
        if self.data_loaded:
            return
        documents = [{"id": one.id, "title": one.title, "text": one.text} for one in self.judged.documents()]
        queries = [{"id": id, "text": text} for id, text in self.judged.queries.items()]
        self.dataset = {
            "default": {
                self.judged.split: RetrievalSplitData(
                    corpus=Table.from_list(documents),
                    queries=Table.from_list(queries),
                    relevant_docs={id: dict(judged) for id, judged in self.judged.qrels.items()},
                    top_ranked=None,
                )
            }
        }
        self.data_loaded = True

    def task_specific_scores(
        self, scores: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Any], *_rest: Any, **_options: Any
    ) -> dict[str, float]:
        names = {"ndcg_at_10": "ndcg_cut_10", "recall_at_100": "recall_100", "map_at_100": "map_cut_100"}
        return {
            f"{EXACT}{name}": sum(float(each[key]) for each in scores.values()) / len(qrels)
            for name, key in names.items()
        }
