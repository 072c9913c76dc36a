"""Arms that train a dense model. Long documents as one vector, by a model trained on short ones: the first token, the
mean of first tokens repeated at a stride (MCLS), the mean of all tokens, and the best of short passages. And a small
encoder with and without pre-training. They import torch when they run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.encode.chunking import with_title
from plait.evaluate.measures import measure_each
from plait_reproduce.arms.trained import TEST, part_places, ranked
from plait_reproduce.encoded_set import DEPTH, USUAL
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.frozen_encoder import FrozenEncoder, Pooled
from plait_reproduce.workbench import Workbench

TRAIN, LONG = "squad-train", "boolq-long"
SETS = (TRAIN, LONG)
STRIDES = (64, 128)  # tokens from one [CLS] to the next
PASSAGE = 128  # tokens per passage

Vectors = NDArray[np.float32]


def one_vector(workbench: Workbench, settings: Settings) -> Outcome:
    """`cls/...`, `mcls 64/...`, `mcls 128/...`, `mean/...` and `best/...`, the best passage of 128 tokens. Settings:
    seed."""
    from plait.evaluate.measures import measure_each
    from plait_reproduce.training.linear_head import STEPS, taught
    from plait_reproduce.training.recipes import seeded

    questions, answers, passage = _learned_from(workbench)
    texts = workbench.texts(LONG)
    bodies = [with_title(document.title, document.text) for document in texts.documents]
    plain = _reader(workbench)
    queries = plain.pooled(LONG, list(texts.queries.values()), is_query=True)
    documents = {"cls": plain.pooled(LONG, bodies, is_query=False)}
    for stride in STRIDES:
        documents[f"mcls {stride}"] = _reader(workbench, mcls=stride).pooled(LONG, bodies, is_query=False)
    splitter = workbench.encoder(length=PASSAGE)
    spans = [splitter.chunker.split("", body) for body in bodies]
    parts = [body[start:end] for body, body_spans in zip(bodies, spans, strict=True) for start, end in body_spans]
    owners = np.repeat(np.arange(len(bodies)), [len(body_spans) for body_spans in spans])
    passages = plain.pooled(f"{LONG}, in passages", parts, is_query=False)

    seeded(workbench, settings["seed"])
    n_steps, seed = STEPS[workbench.tier], settings["seed"]
    first = taught(questions.first, answers.first, passage, n_steps=n_steps, seed=seed)
    mean = taught(questions.mean, answers.mean, passage, n_steps=n_steps, seed=seed)
    scores = {way: first.encode(queries.first) @ first.encode(vectors.first).T for way, vectors in documents.items()}
    scores["mean"] = mean.encode(queries.mean) @ mean.encode(documents["cls"].mean).T
    by_passage = first.encode(queries.first) @ first.encode(passages.first).T
    scores["best"] = np.maximum.reduceat(by_passage, np.searchsorted(owners, np.arange(len(bodies))), axis=1)
    ids = [document.id for document in texts.documents]
    each: dict[str, dict[str, float]] = {}
    for way, way_scores in scores.items():
        run = {
            query: [(ids[number], float(row[number])) for number in np.argsort(-row, kind="stable")[:DEPTH]]
            for query, row in zip(texts.queries, way_scores, strict=True)
        }
        each.update({f"{way}/{name}": values for name, values in measure_each(run, texts.qrels, USUAL).items()})
    return Outcome(each, {"documents": len(bodies), "passages": len(parts)})


def _reader(workbench: Workbench, *, mcls: int | None = None) -> FrozenEncoder:
    return FrozenEncoder(workbench, layer=-1, length=workbench.cut(LONG).length, mcls=mcls)


def _learned_from(workbench: Workbench) -> tuple[Pooled, Pooled, NDArray[np.int64]]:
    """Questions, the short passage that answers each, and its number."""
    texts = workbench.texts(TRAIN)
    encoder = FrozenEncoder(workbench, layer=-1, length=workbench.cut(TRAIN).length)
    numbers = {document.id: number for number, document in enumerate(texts.documents)}
    answer = np.array(
        [min(numbers[id] for id, grade in texts.qrels[query].items() if grade > 0) for query in texts.queries]
    )
    bodies = [with_title(document.title, document.text) for document in texts.documents]
    documents = encoder.pooled(TRAIN, bodies, is_query=False)
    questions = encoder.pooled(TRAIN, list(texts.queries.values()), is_query=True)
    return questions, Pooled(documents.first[answer], documents.mean[answer]), answer


WAYS = ("none", "mlm", "retromae")
STEPS = {"quick": (120, 100), "full": (2000, 500)}  # of pre-training and of training


def dense(workbench: Workbench, settings: Settings) -> Outcome:
    """The dense vector of a small encoder, pre-trained in one of several ways. Settings: way (one of WAYS), seed."""
    from plait_reproduce.frozen_encoder import open_cut
    from plait_reproduce.training.pretraining import (
        Dense,
        Vocabulary,
        embeddings,
        pretrain,
        scores_of,
        small_bert,
        teach,
        worded,
    )
    from plait_reproduce.training.questions import LAYER, TRAIN, questions, states_of
    from plait_reproduce.training.recipes import seeded

    training_set = questions(workbench)
    queries, documents = states_of(workbench, TEST)
    vocabulary = Vocabulary.of(training_set.queries, training_set.documents, queries, documents)
    length = workbench.cut(TEST).length
    words = embeddings(
        vocabulary, *(states for name in (TRAIN, TEST) for states in states_of(workbench, name, layer=0))
    )
    seeded(workbench, settings["seed"])
    model = small_bert(words, length)
    before, after = STEPS[workbench.tier]
    losses = [0.0]
    if settings["way"] != "none":
        _, reader = open_cut(workbench, LAYER, length)
        texts = worded(training_set.documents, vocabulary, reader) + worded(documents, vocabulary, reader)
        losses = pretrain(model, texts, len(vocabulary), decoder=settings["way"] == "retromae", n_steps=before,
                          seed=settings["seed"])  # fmt: skip
    taught = Dense(model, vocabulary)
    teach(taught, training_set, n_steps=after, seed=settings["seed"])
    texts_ = workbench.texts(TEST)
    query_numbers = part_places(texts_, "test")
    scores = scores_of(taught.eval(), queries.some(query_numbers), documents)
    ids, names = [document.id for document in texts_.documents], list(texts_.queries)
    run = {
        names[row]: [(ids[number], float(score)) for number, score in zip(*ranking, strict=True)]
        for row, ranking in zip(query_numbers, ranked(scores), strict=True)
    }
    qrels = {query: texts_.qrels[query] for query in run}
    return Outcome(measure_each(run, qrels, USUAL), {"vocabulary": len(vocabulary), "loss": losses[-1]})
