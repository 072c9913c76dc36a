"""From a recipe to a cross-encoder in training."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from plait.encode.load import find_model, known_models
from plait.encode.model_card import DocumentInput, QueryInput
from plait.errors import ConfigError, InputError
from plait.evaluate import measure, rank_queries
from plait.index import open_index
from plait.rerank.pairs import PairTokenizer
from plait.rerank.reranker import Reranker
from plait.train.backbone import Backbone, load_backbone, make_backbone
from plait.train.batching.stream import TextBatch
from plait.train.cross.config import CrossConfig, CrossEntropyConfig, CrossPlan, read_cross_plan
from plait.train.cross.model import CrossModel
from plait.train.cross.model import save_cross as save
from plait.train.cross.scorers import TorchPairScorer, padded
from plait.train.devices import process
from plait.train.evaluation import Judged
from plait.train.frozen_layers import GraphStates
from plait.train.loop import Parts
from plait.train.losses.distillation import distillation
from plait.train.mining.negatives import WordsOnly
from plait.train.model_config import DenseHeadConfig, ModelConfig
from plait.train.optimiser import OptimiserConfig, parameter_groups
from plait.train.recipe import EvaluationConfig, Recipe
from plait.train.tensors import Loss, Summed
from plait.train.tokenization import Texts, load_tokenizer, with_markers


def list_loss(scores: Tensor, known: Tensor, teacher: Tensor | None, config: CrossEntropyConfig) -> Summed:
    """Mean over queries of scores (queries, ways), the positive first. `known` (queries, ways) is False where a list is
    filled up with what is not there; `teacher` has scores of the same shape."""
    labels = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    right = F.cross_entropy(scores.masked_fill(~known, -torch.inf), labels)
    if not config.distil:
        return Summed(right)
    if teacher is None:
        raise InputError(
            f"distil is {config.distil}, and the data has no teacher's scores; name a teacher in the section mining, "
            f"or use data with scores"
        )
    learned = distillation(scores, teacher, alpha=config.alpha, known=known)
    parts = {"labels": float(right.detach()), "teacher": float(learned.detach())}
    return Summed((1 - config.distil) * right + config.distil * learned, parts)


def own_facts(batch: TextBatch) -> tuple[Tensor, Tensor | None]:
    """(queries, ways) of this process's queries: which passages of each list are there, and the teacher's scores."""
    first, n = process() * len(batch.queries), len(batch.queries)
    known = torch.stack(
        [
            torch.from_numpy(batch.allowed[row, row * batch.group : (row + 1) * batch.group])
            for row in range(first, first + n)
        ]
    )
    return known, None if batch.teacher is None else torch.from_numpy(batch.teacher[first : first + n])


def build_cross(recipe: Recipe) -> Parts:
    """What the recipe trains."""
    plan = read_cross_plan(recipe)
    config, tokenizer = plan.model, _tokenizer(plan)
    reader = PairTokenizer(tokenizer, config.frame)
    backbone = _backbone(plan, tokenizer)
    graph = (
        GraphStates(plan.graph, hidden=backbone.hidden, n_threads=recipe.run.threads or None) if plan.graph else None
    )
    model = CrossModel(config, backbone, reader.marker_ids, graph=graph)
    scorer = TorchPairScorer(model, reader)

    def losses(batch: TextBatch) -> Iterator[tuple[Loss, float]]:
        known, teacher = own_facts(batch)
        device, n = next(model.parameters()).device, len(batch.queries)
        size = plan.objective.part or n
        for start in range(0, n, size):
            own = slice(start, start + size)
            pairs = [
                (query, document)
                for number, query in enumerate(batch.queries[own], start)
                for document in batch.documents[number * batch.group : (number + 1) * batch.group]
            ]
            scores = model(padded(reader.tokenize(pairs), range(len(pairs)), device)).float().view(-1, batch.group)
            taught = None if teacher is None else teacher[own].to(device)
            loss: Summed = list_loss(scores, known[own].to(device), taught, plan.objective)
            yield loss, len(scores) / n

    return Parts(
        model,
        Texts(tokenizer, _as_encoder(config)),
        groups=lambda optimiser: _groups(model, optimiser),
        save=lambda to: save(model, tokenizer, to),
        joint=losses,
        evaluate=lambda judged, settings, folder: evaluate_reranking(scorer, judged, settings, folder),
    )


def evaluate_reranking(scorer: TorchPairScorer, judged: Judged, config: EvaluationConfig, folder: Path) -> float:
    """The measure of the recipe for what BM25 finds, `k` of it, in the order of the cross-encoder."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with open_index(folder, create=True, encoder=WordsOnly()) as index:
            index.add(judged.documents)
            reranker = Reranker(scorer, config.k)
            ranked = rank_queries(index, list(judged.queries.values()), config.k, mode="bm25", rerank=reranker)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return measure(dict(zip(judged.queries, ranked, strict=True)), judged.qrels, [config.measure])[config.measure]


def _tokenizer(plan: CrossPlan) -> Tokenizer:
    name = plan.tokenizer or plan.model.backbone
    found = load_tokenizer(find_model(name) if name in known_models() else name)
    # A marker is then one token wherever it is read, and a text that holds its name cannot pass for it.
    return with_markers(found, plan.model.markers if plan.model.head == "emb" else ())


def _backbone(plan: CrossPlan, tokenizer: Tokenizer) -> Backbone:
    if not plan.random:
        dropout = plan.model.backbone_dropout
        return load_backbone(plan.model.backbone, dropout=None if dropout < 0 else dropout)
    from transformers import AutoConfig

    settings = {"vocab_size": tokenizer.get_vocab_size(), **plan.random}
    try:
        return make_backbone(AutoConfig.for_model(**settings))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"[model] random is not a config of transformers: {error}") from None


def _as_encoder(config: CrossConfig) -> ModelConfig:
    """How long documents are, for putting those of like length into one batch."""
    length = config.length - config.query_length // 2
    return ModelConfig(
        name=config.name,
        backbone=config.backbone,
        dense=DenseHeadConfig(),
        query=QueryInput(config.query_length, "", None),
        document=DocumentInput(length, "", 0),
    )


def _groups(model: Any, optimiser: OptimiserConfig) -> list[dict[str, Any]]:
    return parameter_groups(
        model,
        optimiser.lr,
        layer_decay=optimiser.layer_decay,
        head_lr=optimiser.head_lr or None,
        weight_decay=optimiser.weight_decay,
    )
