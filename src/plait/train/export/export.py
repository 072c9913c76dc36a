"""From a run to a model folder. The graph is written, compared with torch on real text, quantised and compared again;
only then the folder is created, with a card (plait.json) and a page (README.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from plait.encode.load import load_model
from plait.encode.model_card import CARD_NAME, FORMAT, ModelCard, parse_card
from plait.encode.model_files import check_target
from plait.encode.onnx import OnnxEncoder
from plait.errors import ConfigError
from plait.evaluate import Dataset
from plait.graphs.build import build_graph, check_family
from plait.graphs.heads import MCLS
from plait.train.checkpoint import draft_folder
from plait.train.devices import CPU, check_device, torch_device
from plait.train.export.page import UNSTATED, Checks, model_page
from plait.train.export.parity import (
    QUERIES,
    check_fp32,
    check_int8,
    compare,
    measure_ranks,
    read_dataset,
    sample_documents,
)
from plait.train.export.trained import (
    Trained,
    backbone_arrays,
    check_positions,
    dense_dim,
    head_arrays,
    read_trained,
    vocabulary_size,
    weights_hash,
)
from plait.train.model import Model
from plait.train.tokenization import TextTokenizer
from plait.train.torch_encoder import TorchEncoder


def write_file(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Writes a file; returns its record for the card."""
    (folder / name).write_bytes(content)
    return {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def write_card(folder: Path, card: dict[str, Any]) -> None:
    (folder / CARD_NAME).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def tokenizer_bytes(tokenizer: Tokenizer) -> bytes:
    """The tokenizer without padding and truncation: plait does both itself, and counts truncated texts."""
    content = json.loads(tokenizer.to_str())
    content["padding"] = content["truncation"] = None
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


FP32, INT8 = "fp32", "int8"
FILES = {INT8: "model.int8.onnx", FP32: "model.onnx"}
PRECISIONS = {INT8: (INT8,), FP32: (FP32,), "both": (INT8, FP32)}
PAGE, TOKENIZER = "README.md", "tokenizer.json"
N_COMPARED = 32  # queries and documents of a dataset on which a graph is compared, besides the samples


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportConfig:
    """Options of an export."""

    precision: str = INT8  # or "fp32", or "both"
    weights: str = ""  # "best" or "final"; default: best, or final if there is no best
    name: str = ""  # default: the name in the recipe
    licence: str = UNSTATED
    attribution: str = ""  # default: the backbone
    languages: tuple[str, ...] = ()
    data: str = ""  # a BEIR folder on which int8 and fp32 are compared by nDCG@10
    split: str = "test"
    mcls: int | None = None  # tokens between the [CLS] tokens of a document; their mean is the dense vector
    exclude_sparse_from_hybrid: bool = False  # unless the caller gives the sparse vectors a weight
    force: bool = False  # replace an existing model folder
    n_threads: int | None = None
    device: str | None = None  # "cpu" or "cuda", for the comparison with torch; default: the GPU if torch has one

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision is {self.precision!r}; choose one of {', '.join(PRECISIONS)}")
        if self.mcls is not None and self.mcls < 1:
            raise ConfigError(f"mcls is {self.mcls}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class Exported:
    """A model folder, its card, and the results of the checks."""

    folder: Path
    card: ModelCard
    checks: Checks


def export_run(
    run: str | Path,
    to: str | Path,
    config: ExportConfig | None = None,
    on_stage: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Writes the model folder `to`, whole or not at all. `run` is the folder of a run or of a saved model. `on_stage`
    is called with the name of each stage."""
    config, folder = config or ExportConfig(), Path(to)
    check_target(folder, force=config.force)
    check_device(config.device)
    dataset = read_dataset(Path(config.data), config.split) if config.data else None
    on_stage(f"reading {run}")
    trained = read_trained(Path(run), config.weights)
    check_family(trained.model.backbone.encoder.config.to_dict())
    check_positions(trained.model)
    with draft_folder(folder) as draft:
        card = _write_files(draft, trained, config, on_stage)
        checks = _run_checks(draft, trained, config, dataset, on_stage)
        parsed = _finish_card(draft, card, config)
        page = model_page(parsed, trained, checks, date=datetime.now(UTC).date().isoformat())
        (draft / PAGE).write_text(page, encoding="utf-8")
    return Exported(folder, parsed, checks)


def _write_files(
    draft: Path, trained: Trained, config: ExportConfig, on_stage: Callable[[str], None]
) -> dict[str, Any]:
    """Writes every file except the page, and returns the card. The fp32 graph is always written: int8 is compared with
    it."""
    weights, backbone = backbone_arrays(trained.model)
    heads = head_arrays(trained.model, vocabulary_size(trained.model))
    if config.mcls is not None:
        poolings = heads.dense.poolings if heads.dense else ()
        if heads.dense is None or poolings != ("cls",):
            raise ConfigError(f"mcls needs a model with pooling 'cls'; this one has {'+'.join(poolings) or None!r}")
        heads = replace(heads, dense=replace(heads.dense, poolings=(MCLS,)))
    precisions: dict[str, Any] = {}
    for precision in dict.fromkeys((*PRECISIONS[config.precision], FP32)):
        on_stage(f"writing the {precision} graph")
        content = build_graph(weights, backbone, heads, precision=precision)
        precisions[precision] = write_file(draft, FILES[precision], content)
    model = trained.model.config
    card = {
        "format": FORMAT,
        "name": config.name or model.name,
        "version": "1",
        "embeddings": card_embeddings(trained.model, exclude_sparse_from_hybrid=config.exclude_sparse_from_hybrid),
        "query": asdict(model.query),
        "document": {**asdict(model.document), "overlap": _card_overlap(trained.model, on_stage)},
        "similarity": model.similarity,
        "weights": weights_hash(trained.model),
        "tokenizer": write_file(draft, TOKENIZER, tokenizer_bytes(trained.tokenizer)),
        "precisions": precisions,
        "languages": list(config.languages),
        "licence": config.licence,
        "attribution": config.attribution or f"the backbone is {model.backbone}",
        "source": f"{model.backbone}, trained with plait" if trained.recipe else model.backbone,
        "made": "plait export",
    }
    write_card(draft, card)
    return card


def _card_overlap(model: Model, on_stage: Callable[[str], None]) -> int:
    """The overlap of passages, less than half of their length. Training does not split documents, so a recipe may have
    any number here."""
    document = model.config.document
    fitting = max(0, min(document.overlap, document.length // 2 - 1))
    if fitting != document.overlap:
        on_stage(f"passages of {document.length} tokens will overlap by {fitting}, not by {document.overlap}")
    return fitting


def card_embeddings(model: Model, *, exclude_sparse_from_hybrid: bool = False) -> dict[str, Any]:
    """The section `embeddings` of the card."""
    config = model.config
    embeddings: dict[str, Any] = {}
    if config.dense is not None:
        embeddings["dense"] = {"dim": dense_dim(model), "pooling": config.dense.pooling}
        embeddings["dense"] |= {} if config.dense.normalize else {"normalize": False}
    if config.sparse is not None:
        embeddings["sparse"] = {"vocabulary": vocabulary_size(model)}
        embeddings["sparse"] |= {"forms": True} if config.sparse.stemming else {}
        embeddings["sparse"] |= {"exclude_from_hybrid": True} if exclude_sparse_from_hybrid else {}
        weighting = {"length_norm": config.sparse.length_norm, "query_tf": config.sparse.query_tf}
        embeddings["sparse"] |= {name: value for name, value in weighting.items() if value}
    if config.multi is not None:
        multi: dict[str, Any] = {"dim": config.multi.dim, "special_rows": config.multi.special_rows}
        multi["skip"] = list(config.multi.skip)
        if not config.multi.first_row:
            multi["first_row"] = False
        if config.multi.skip_queries:
            multi["skip_queries"] = True
        if config.multi.fixed is not None:
            multi["fixed"] = config.multi.fixed.n_vectors
        embeddings["multi"] = multi
    return embeddings


def torch_encoder(trained: Trained, fingerprint: str = "in torch", device: torch.device | str = "cpu") -> TorchEncoder:
    """The torch model as an encoder, with which graphs are compared."""
    texts = TextTokenizer(trained.tokenizer, trained.model.config)
    vocabulary, sparse = vocabulary_size(trained.model), trained.model.config.sparse
    return TorchEncoder(
        trained.model, texts, fingerprint=fingerprint, device=device, vocabulary=vocabulary, sparse=sparse
    )


def _run_checks(
    draft: Path, trained: Trained, config: ExportConfig, dataset: Dataset | None, on_stage: Callable[[str], None]
) -> Checks:
    queries, documents = list(QUERIES), sample_documents()
    if dataset is not None:
        queries += list(dataset.queries.values())[:N_COMPARED]
        first = zip(range(N_COMPARED), dataset.documents(), strict=False)
        documents += [f"{document.title} {document.text}".strip() for _, document in first]
    encoders: dict[str, OnnxEncoder] = {}
    for precision in dict.fromkeys((*PRECISIONS[config.precision], FP32)):
        encoders[precision] = load_model(draft, precision=precision, n_threads=config.n_threads)
    device = torch_device(config.device)
    on_stage("comparing with torch" + ("" if device.type == CPU else f" on {device.type}"))
    trained.model.to(device)
    fp32_parity = compare(torch_encoder(trained, device=device), encoders[FP32], queries, documents)
    check_fp32(fp32_parity)
    int8_parity = None
    if INT8 in encoders:
        on_stage("comparing int8 with fp32")
        int8_parity = compare(encoders[FP32], encoders[INT8], queries, documents)
        check_int8(int8_parity)
    ranking = measure_ranks(encoders, dataset, on_stage) if dataset is not None else None
    return Checks(fp32_parity, int8_parity, ranking)


def _finish_card(draft: Path, card: dict[str, Any], config: ExportConfig) -> ModelCard:
    """Removes the precisions that were not selected, and their files."""
    for precision in set(card["precisions"]) - set(PRECISIONS[config.precision]):
        (draft / card["precisions"].pop(precision)["file"]).unlink()
    # Set after the comparison: the torch model reads and pools only the first [CLS].
    card["document"]["mcls"] = config.mcls
    write_card(draft, card)
    return parse_card(card, CARD_NAME)
