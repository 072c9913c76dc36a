"""From a recipe to a cross-encoder in training: its model, its loss over lists, and its evaluation by reranking."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from plait.encode.model_card import DocumentInput, QueryInput
from plait.errors import InputError
from plait.evaluate import measure, rank_queries
from plait.index import open_index
from plait.rerank.pairs import PairTokenizer
from plait.rerank.reranker import Reranker
from plait.train.backbone import Backbone, load_backbone, make_backbone, random_config
from plait.train.batching.stream import TextBatch
from plait.train.cross.config import CrossConfig, CrossEntropyConfig, CrossPlan, read_cross_plan
from plait.train.cross.model import CrossModel, save_cross
from plait.train.cross.scorers import TorchPairScorer, pad_pairs
from plait.train.devices import process
from plait.train.evaluation import DevSet
from plait.train.frozen_layers import GraphStates
from plait.train.head_layers import copy_layers
from plait.train.loop import Trainable
from plait.train.losses.distillation import distillation
from plait.train.mining.negatives import Bm25Only
from plait.train.model_config import DenseHeadConfig, ModelConfig
from plait.train.optimiser import parameter_groups
from plait.train.recipe import EvaluationConfig, Recipe
from plait.train.start import StartingModel, start_backbone, start_tokenizer
from plait.train.tensors import Loss, LossValue
from plait.train.tokenization import TextTokenizer, open_tokenizer, with_markers


def build_cross(recipe: Recipe, folder: Path, start: StartingModel | None = None) -> Trainable:
    """What the recipe trains; `folder` is that of the run, and `start` the checkpoint that the recipe starts from."""
    plan = read_cross_plan(recipe, start)
    config, tokenizer = plan.model, _tokenizer(plan)
    pair_tokenizer = PairTokenizer(tokenizer, config.pair_input)
    backbone = _backbone(plan, tokenizer)
    graph = (
        GraphStates(plan.graph, hidden=backbone.hidden, n_threads=recipe.run.threads or None) if plan.graph else None
    )
    model = CrossModel(config, backbone, pair_tokenizer.marker_ids, graph=graph)
    if start is not None and model.classifier is not None and start.heads.score is not None:
        copy_layers(model.classifier, start.heads.score.layers)
    if plan.origin is not None and process() == 0:
        plan.origin.write(folder)
    scorer = TorchPairScorer(model, pair_tokenizer)

    def losses(batch: TextBatch) -> Iterator[tuple[Loss, float]]:
        known, teacher = list_targets(batch)
        device, n_queries = next(model.parameters()).device, len(batch.queries)
        size = plan.loss.microbatch or n_queries
        for start in range(0, n_queries, size):
            span = slice(start, start + size)
            pairs = [
                (query, document)
                for number, query in enumerate(batch.queries[span], start)
                for document in batch.documents[number * batch.group : (number + 1) * batch.group]
            ]
            tokens = pad_pairs(pair_tokenizer.tokenize(pairs), range(len(pairs)), device)
            scores = model(tokens).float().view(-1, batch.group)
            teacher_scores = None if teacher is None else teacher[span].to(device)
            yield list_loss(scores, known[span].to(device), teacher_scores, plan.loss), len(scores) / n_queries

    return Trainable(
        model,
        TextTokenizer(tokenizer, _encoder_config(config)),
        groups=lambda optimiser: parameter_groups(model, optimiser),
        save=lambda to: save_cross(model, tokenizer, to),
        pair_losses=losses,
        evaluate=lambda dev_set, settings, folder: evaluate_reranking(scorer, dev_set, settings, folder),
    )


def list_loss(scores: Tensor, known: Tensor, teacher: Tensor | None, config: CrossEntropyConfig) -> LossValue:
    """The mean over queries of (queries, ways) scores, the positive first. `known` (queries, ways) is False for the
    padding of short lists; `teacher` has scores of the same shape."""
    labels = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    from_labels = F.cross_entropy(scores.masked_fill(~known, -torch.inf), labels)
    if not config.teacher_weight:
        return LossValue(from_labels)
    if teacher is None:
        raise InputError(
            f"teacher_weight is {config.teacher_weight}, and the data has no teacher's scores; set mining.teacher, or "
            f"use data with scores"
        )
    from_teacher = distillation(scores, teacher, teacher_scale=config.teacher_scale, known=known)
    parts = {"labels": float(from_labels.detach()), "teacher": float(from_teacher.detach())}
    return LossValue((1 - config.teacher_weight) * from_labels + config.teacher_weight * from_teacher, parts)


def list_targets(batch: TextBatch) -> tuple[Tensor, Tensor | None]:
    """(queries, ways) for this process's queries: the mask of each list, and the teacher's scores."""
    first, n_queries = process() * len(batch.queries), len(batch.queries)
    known = torch.stack(
        [
            torch.from_numpy(batch.allowed[row, row * batch.group : (row + 1) * batch.group])
            for row in range(first, first + n_queries)
        ]
    )
    return known, None if batch.teacher is None else torch.from_numpy(batch.teacher[first : first + n_queries])


def evaluate_reranking(scorer: TorchPairScorer, dev_set: DevSet, config: EvaluationConfig, folder: Path) -> float:
    """The recipe's measure for the best `k` of BM25, reranked by the cross-encoder."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with open_index(folder, create=True, encoder=Bm25Only()) as index:
            index.add(dev_set.documents)
            reranker = Reranker(scorer, config.k)
            ranked = rank_queries(index, list(dev_set.queries.values()), config.k, mode="bm25", rerank=reranker)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return measure(dict(zip(dev_set.queries, ranked, strict=True)), dev_set.qrels, [config.measure])[config.measure]


def _tokenizer(plan: CrossPlan) -> Tokenizer:
    if plan.start is not None:
        return start_tokenizer(plan.start)
    tokenizer = open_tokenizer(plan.tokenizer or plan.model.backbone)
    # As a special token a marker is one token everywhere, and a text that contains its name cannot pass for it.
    return with_markers(tokenizer, plan.model.markers if plan.model.head == "emb" else ())


def _backbone(plan: CrossPlan, tokenizer: Tokenizer) -> Backbone:
    if plan.random:
        return make_backbone(random_config(plan.random, n_ids=tokenizer.get_vocab_size()))
    dropout = None if plan.model.backbone_dropout < 0 else plan.model.backbone_dropout
    if plan.start is not None:
        return start_backbone(plan.start, dropout=dropout)
    return load_backbone(plan.model.backbone, dropout=dropout)


def _encoder_config(config: CrossConfig) -> ModelConfig:
    """An encoder config with which the lengths of documents are counted, to batch those of similar length."""
    length = config.length - config.query_length // 2
    return ModelConfig(
        name=config.name,
        backbone=config.backbone,
        dense=DenseHeadConfig(),
        query=QueryInput(config.query_length, "", None),
        document=DocumentInput(length, "", 0),
    )
