"""The data sets of the experiments, reduced to what a small machine can encode. A subset is always the same.

A subset takes queries in the order of a hash of their ids, then every document that is relevant to one of them, then
other documents in hash order until it is full. It is a random sample with all answers: easier than the whole set, but
equally so for all arms. Where documents are long, they are drawn first and bring their queries. A set of long documents
can also be made by joining short ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from plait.errors import ConfigError, InputError
from plait.evaluate import load_beir
from plait.evaluate.dataset_files import Qrels
from plait.evaluate.run_cache import hash_of
from plait.records import Document

TIERS = ("quick", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How much of a set each tier uses."""

    folder: str  # below the folder of all data
    split: str = "test"
    documents: tuple[int, int]  # at most, for quick and full
    queries: tuple[int, int]
    length: int = 180  # tokens read of a document
    passages: bool = False  # split longer documents into passages of this length
    documents_first: bool = False  # draw documents, then the queries that they answer
    queries_from: str = ""  # take the queries of the same ids from this folder
    joined: int = 1  # number of random documents joined into one

    def sizes(self, tier: str) -> tuple[int, int]:
        """Numbers of documents and queries."""
        tier_number = TIERS.index(tier)
        return self.documents[tier_number], self.queries[tier_number]


SETS: Mapping[str, Cut] = {
    "scifact": Cut(folder="scifact", documents=(600, 5183), queries=(300, 300)),
    "cranfield": Cut(folder="cranfield", documents=(1000, 1400), queries=(225, 225)),
    "clapnq": Cut(folder="clapnq-dev", documents=(596, 596), queries=(300, 300)),
    "climate": Cut(folder="climate-fever-sent", documents=(2000, 5240), queries=(300, 1061)),
    "boolq": Cut(folder="boolq", documents=(1500, 5483), queries=(400, 1970)),
    "cacm": Cut(folder="cacm", documents=(1500, 3204), queries=(52, 52)),
    "limit": Cut(folder="limit-small", documents=(46, 46), queries=(300, 1000)),
    "entities": Cut(folder="wikitables-el", split="train", documents=(1000, 8000), queries=(460, 1500), length=64),
    "covidqa": Cut(
        folder="covidqa-long",
        documents=(40, 98),
        queries=(300, 1380),
        length=512,
        passages=True,
        documents_first=True,
    ),
    # Four joined paragraphs, some 500 tokens: long for an encoder that reads 512 at most.
    "boolq-long": Cut(folder="boolq", documents=(480, 2000), queries=(300, 1000), length=512, joined=4),
    # Training and test data of the arms that train: short passages, so that training takes seconds.
    "squad-train": Cut(folder="squad-sent", split="train", documents=(1000, 4000), queries=(1000, 4000), length=64),
    "squad-test": Cut(folder="squad-sent", documents=(1200, 5000), queries=(300, 1000), length=64),
    "climate-small": Cut(folder="climate-fever-sent", documents=(600, 2000), queries=(120, 400), length=64),
    "xquad-en": Cut(folder="xquad/en", documents=(240, 240), queries=(300, 1190)),
    "xquad-de": Cut(folder="xquad/en", documents=(240, 240), queries=(300, 1190), queries_from="xquad/de"),
    "xquad-es": Cut(folder="xquad/en", documents=(240, 240), queries=(300, 1190), queries_from="xquad/es"),
}


@dataclass(frozen=True, slots=True, eq=False)
class CutSet:
    """The texts of a subset and their judgements."""

    name: str
    documents: list[Document]
    queries: dict[str, str]
    qrels: Qrels  # of these queries and documents only

    @property
    def key(self) -> str:
        """Identifies the texts."""
        texts = [[document.id, document.title, document.text] for document in self.documents]
        return hash_of([texts, list(self.queries.items()), self.qrels])


def named(name: str, sets: Mapping[str, Cut] = SETS) -> Cut:
    if name not in sets:
        raise ConfigError(f"there is no set {name!r}; the sets are {', '.join(sets)}")
    return sets[name]


def load_cut(name: str, cut: Cut, data: Path, tier: str) -> CutSet:
    """Reads a set and reduces it; InputError names a missing folder."""
    folder = data / cut.folder
    if not folder.is_dir():
        raise InputError(
            f"the set {name} is missing: {folder} is not a folder; give the folder of all data sets with --data"
        )
    judged = load_beir(folder, cut.split)
    texts = judged.queries
    if cut.queries_from:
        others = load_beir(data / cut.queries_from, cut.split).queries
        texts = {id: others[id] for id in texts if id in others}
    n_documents, n_queries = cut.sizes(tier)
    documents = {document.id: document for document in judged.documents()}
    if cut.documents_first:
        drawn_ids = set(in_hash_order(documents)[:n_documents])
        documents = {id: document for id, document in documents.items() if id in drawn_ids}
        texts = {id: text for id, text in texts.items() if _answers(judged.qrels[id]) & drawn_ids}
    chosen = in_hash_order(texts)[:n_queries]
    relevant = {id for query in chosen for id in _answers(judged.qrels[query])}
    # Relevant documents first, and all of them, even if they exceed the size.
    order = sorted(relevant & documents.keys()) + [id for id in in_hash_order(documents) if id not in relevant]
    chosen_ids = set(order[: max(n_documents, len(relevant & documents.keys()))])
    qrels = {query: {id: grade for id, grade in judged.qrels[query].items() if id in chosen_ids} for query in chosen}
    answered = [query for query in chosen if any(grade > 0 for grade in qrels[query].values())]
    cut_set = CutSet(
        name,
        [documents[id] for id in documents if id in chosen_ids],
        {query: texts[query] for query in answered},
        {query: qrels[query] for query in answered},
    )
    return cut_set if cut.joined == 1 else joined(cut_set, cut.joined)


def joined(cut: CutSet, size: int) -> CutSet:
    """The same queries over documents that each join `size` documents, in hash order."""
    by_id = {document.id: document for document in cut.documents}
    order = in_hash_order(by_id)
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    names = {id: f"long-{number}" for number, group in enumerate(groups) for id in group}
    documents = [
        Document(f"long-{number}", " ".join(f"{by_id[id].title}. {by_id[id].text}".strip(". ") + "." for id in group))
        for number, group in enumerate(groups)
    ]
    qrels: Qrels = {}
    for query, grades in cut.qrels.items():
        merged_grades = qrels.setdefault(query, {})
        for id, grade in grades.items():
            merged_grades[names[id]] = max(grade, merged_grades.get(names[id], 0))
    return CutSet(cut.name, documents, cut.queries, qrels)


def _answers(grades: Mapping[str, int]) -> set[str]:
    return {id for id, grade in grades.items() if grade > 0}


def in_hash_order(ids: Iterable[str]) -> list[str]:
    """The ids in a random order that is always the same."""
    return sorted(ids, key=lambda id: hashlib.sha256(id.encode()).digest())
