"""Arms that pre-train a small encoder in one of several ways, teach it to retrieve, and measure it."""

from __future__ import annotations

from plait.evaluate.measures import measure_each
from plait_reproduce.arms.measuring import USUAL
from plait_reproduce.arms.trained import TEST, part_places, ranked
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

WAYS = ("none", "mlm", "retromae")
STEPS = {"quick": (120, 100), "full": (2000, 500)}  # of pre-training, and of teaching


def dense(workbench: Workbench, settings: Settings) -> Outcome:
    """The dense strand of a small encoder. Settings: way (one of WAYS), seed."""
    from plait_reproduce.states import open_cut
    from plait_reproduce.train.data import LAYER, TRAIN, questions, states_of
    from plait_reproduce.train.pretraining import (
        Dense,
        Vocabulary,
        embeddings,
        pretrain,
        scores_of,
        small_bert,
        teach,
        worded,
    )
    from plait_reproduce.train.recipes import seeded

    own = questions(workbench)
    queries, documents = states_of(workbench, TEST)
    vocabulary = Vocabulary.of(own.queries, own.documents, queries, documents)
    length = workbench.cut(TEST).length
    words = embeddings(vocabulary, *(own for name in (TRAIN, TEST) for own in states_of(workbench, name, layer=0)))
    seeded(workbench, settings["seed"])
    model = small_bert(words, length)
    before, after = STEPS[workbench.tier]
    losses = [0.0]
    if settings["way"] != "none":
        _, reader = open_cut(workbench, LAYER, length)
        texts = worded(own.documents, vocabulary, reader) + worded(documents, vocabulary, reader)
        losses = pretrain(model, texts, len(vocabulary), decoder=settings["way"] == "retromae", n_steps=before,
                          seed=settings["seed"])  # fmt: skip
    taught = Dense(model, vocabulary)
    teach(taught, own, n_steps=after, seed=settings["seed"])
    texts_ = workbench.texts(TEST)
    places = part_places(texts_, "test")
    scores = scores_of(taught.eval(), queries.some(places), documents)
    ids, names = [document.id for document in texts_.documents], list(texts_.queries)
    run = {
        names[place]: [(ids[number], float(score)) for number, score in zip(*found, strict=True)]
        for place, found in zip(places, ranked(scores), strict=True)
    }
    qrels = {query: texts_.qrels[query] for query in run}
    return Outcome(measure_each(run, qrels, USUAL), {"vocabulary": len(vocabulary), "loss": losses[-1]})
