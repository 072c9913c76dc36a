"""From a run to a model folder: the graph is written, compared with torch on real text, rounded, compared again, and
only then put in its place, with a card for plait and a page for people."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from plait.encode.load import load_model
from plait.encode.model_card import CARD_NAME, FORMAT, ModelCard, parse_card
from plait.encode.onnx import OnnxEncoder
from plait.errors import ConfigError
from plait.evaluate import Dataset
from plait.train.export.graph import MCLS, build_graph, check_family
from plait.train.export.page import UNSTATED, Checks, model_page
from plait.train.export.parity import (
    QUERIES,
    check_rounded,
    check_same,
    compare,
    measure_ranks,
    read_collection,
    sample_documents,
)
from plait.train.export.trained import (
    Trained,
    backbone_of,
    check_positions,
    heads_of,
    n_ids_of,
    read_trained,
    weights_hash,
)
from plait.train.model import Model
from plait.train.tokenization import Texts
from plait.train.torch_encoder import TorchEncoder


def check_target(folder: Path, *, force: bool) -> None:
    """Refuses a place that holds something, unless it is a model folder that may be replaced."""
    if not folder.exists():
        return
    is_model = (folder / CARD_NAME).is_file()
    if not force:
        hint = "name another folder, or replace it with --force" if is_model else "name another folder"
        raise ConfigError(f"{folder} exists; {hint}")
    if not is_model:
        raise ConfigError(f"{folder} exists and has no {CARD_NAME}; --force replaces model folders only")


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` that takes its place when all went well, and is removed when not. What was there before
    is kept until then."""
    draft = folder.with_name(f"{folder.name}.new-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        _put_in_place(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _put_in_place(draft: Path, folder: Path) -> None:
    if not folder.exists():
        draft.replace(folder)
        return
    # A folder that holds something cannot be replaced in one step; what was there comes back if the second fails.
    old = folder.with_name(f"{folder.name}.old-{os.getpid()}")
    folder.replace(old)
    try:
        draft.replace(folder)
    except BaseException:
        old.replace(folder)
        raise
    shutil.rmtree(old)


def write_file(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Writes a file; what the card records of it."""
    (folder / name).write_bytes(content)
    return {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def write_card(folder: Path, card: dict[str, Any]) -> None:
    (folder / CARD_NAME).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def tokenizer_bytes(tokenizer: Tokenizer) -> bytes:
    """The tokeniser without its padding and cutting: plait does both itself, and counts what it cuts."""
    described = json.loads(tokenizer.to_str())
    described["padding"] = described["truncation"] = None
    return json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()


FP32, INT8 = "fp32", "int8"
FILES = {INT8: "model.int8.onnx", FP32: "model.onnx"}
PRECISIONS = {INT8: (INT8,), FP32: (FP32,), "both": (INT8, FP32)}
PAGE, TOKENIZER = "README.md", "tokenizer.json"
N_COMPARED = 32  # texts of each side, of a collection, that a graph is compared on besides the samples


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportConfig:
    """How a run is exported."""

    precision: str = INT8  # or "fp32", or "both"
    weights: str = ""  # "best" or "final"; by default the best, or the last where none was measured
    name: str = ""  # by default the name in the recipe
    licence: str = UNSTATED
    attribution: str = ""  # by default the backbone
    languages: tuple[str, ...] = ()
    data: str = ""  # a BEIR folder to measure what rounding costs
    split: str = "test"
    mcls: int | None = None  # tokens between one [CLS] and the next in documents, whose mean is the dense vector
    sparse_apart: bool = False  # hybrid search leaves the sparse strand out unless it is given a weight
    force: bool = False  # replace a model that is there
    n_threads: int | None = None

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(f"there is no precision {self.precision!r}; choose one of {', '.join(PRECISIONS)}")
        if self.mcls is not None and self.mcls < 1:
            raise ConfigError(f"mcls is {self.mcls}; there must be a token between one [CLS] and the next")


@dataclass(frozen=True, slots=True)
class Exported:
    """A model folder and what was measured on the way."""

    folder: Path
    card: ModelCard
    checks: Checks


def export_run(
    run: str | Path,
    to: str | Path,
    config: ExportConfig | None = None,
    on_stage: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Writes the model folder `to`, whole or not at all. `run` is the folder of a run, or of a model that training
    saved. `on_stage` is told what is being done."""
    config, folder = config or ExportConfig(), Path(to)
    check_target(folder, force=config.force)
    beir = read_collection(Path(config.data), config.split) if config.data else None
    on_stage(f"reading {run}")
    trained = read_trained(Path(run), config.weights)
    check_family(trained.model.backbone.encoder.config.to_dict())
    check_positions(trained.model)
    with drafted(folder) as draft:
        card = _write(draft, trained, config, on_stage)
        checks = _checked(draft, trained, config, beir, on_stage)
        parsed = _finished(draft, card, config)
        page = model_page(parsed, trained, checks, date=datetime.now(UTC).date().isoformat())
        (draft / PAGE).write_text(page, encoding="utf-8")
    return Exported(folder, parsed, checks)


def _write(draft: Path, trained: Trained, config: ExportConfig, on_stage: Callable[[str], None]) -> dict[str, Any]:
    """Every file but the page. The fp32 graph is always among them: int8 is held against it."""
    weights, backbone = backbone_of(trained.model)
    heads = heads_of(trained.model, n_ids_of(trained.model))
    if config.mcls is not None:
        if heads.pooling != "cls":
            raise ConfigError(f"mcls is for models that are pooled as 'cls'; this one is pooled as {heads.pooling!r}")
        heads = replace(heads, pooling=MCLS)
    precisions: dict[str, Any] = {}
    for precision in dict.fromkeys((*PRECISIONS[config.precision], FP32)):
        on_stage(f"writing the {precision} graph")
        content = build_graph(weights, backbone, heads, int8=precision == INT8)
        precisions[precision] = write_file(draft, FILES[precision], content)
    model = trained.model.config
    card = {
        "format": FORMAT,
        "name": config.name or model.name,
        "version": "1",
        "embeddings": strands_of(trained.model, sparse_apart=config.sparse_apart),
        "query": asdict(model.query),
        "document": {**asdict(model.document), "overlap": overlap_of(trained.model, on_stage)},
        "similarity": "cosine",
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


def overlap_of(model: Model, on_stage: Callable[[str], None]) -> int:
    """What passages share. Training splits no document and takes any number here; a card takes less than half."""
    document = model.config.document
    fitting = max(0, min(document.overlap, document.length // 2 - 1))
    if fitting != document.overlap:
        on_stage(f"passages of {document.length} tokens will overlap by {fitting}, not by {document.overlap}")
    return fitting


def strands_of(model: Model, *, sparse_apart: bool = False) -> dict[str, Any]:
    """The strands of a model, as its card names them."""
    config = model.config
    embeddings: dict[str, Any] = {}
    if config.dense is not None:
        embeddings["dense"] = {"dim": model.backbone.hidden, "pooling": config.dense.pooling}
    if config.sparse is not None:
        embeddings["sparse"] = {"vocabulary": n_ids_of(model)}
        embeddings["sparse"] |= {"forms": True} if config.sparse.forms else {}
        embeddings["sparse"] |= {"exclude_from_hybrid": True} if sparse_apart else {}
        given = {"length_norm": config.sparse.length_norm, "query_tf": config.sparse.query_tf}
        embeddings["sparse"] |= {name: value for name, value in given.items() if value}
    if config.multi is not None:
        multi: dict[str, Any] = {"dim": config.multi.dim, "special_rows": config.multi.special_rows}
        multi["skip"] = list(config.multi.skip)
        if not config.multi.first_row:
            multi["first_row"] = False
        if config.multi.fixed is not None:
            multi["fixed"] = config.multi.fixed.n_vectors
        embeddings["multi"] = multi
    return embeddings


def torch_encoder(trained: Trained, fingerprint: str = "in torch") -> TorchEncoder:
    """The model as torch runs it: what a graph is held against."""
    texts = Texts(trained.tokenizer, trained.model.config)
    vocabulary, sparse = n_ids_of(trained.model), trained.model.config.sparse
    return TorchEncoder(trained.model, texts, fingerprint=fingerprint, vocabulary=vocabulary, sparse=sparse)


def _checked(
    draft: Path, trained: Trained, config: ExportConfig, beir: Dataset | None, on_stage: Callable[[str], None]
) -> Checks:
    queries, documents = list(QUERIES), sample_documents()
    if beir is not None:
        queries += list(beir.queries.values())[:N_COMPARED]
        read = zip(range(N_COMPARED), beir.documents(), strict=False)
        documents += [f"{document.title} {document.text}".strip() for _, document in read]
    encoders: dict[str, OnnxEncoder] = {}
    for precision in dict.fromkeys((*PRECISIONS[config.precision], FP32)):
        encoders[precision] = load_model(draft, precision=precision, n_threads=config.n_threads)
    on_stage("comparing with torch")
    same = compare(torch_encoder(trained), encoders[FP32], queries, documents)
    check_same(same)
    rounded = None
    if INT8 in encoders:
        on_stage("comparing int8 with fp32")
        rounded = compare(encoders[FP32], encoders[INT8], queries, documents)
        check_rounded(rounded)
    ranking = measure_ranks(encoders, beir, on_stage) if beir is not None else None
    return Checks(same, rounded, ranking)


def _finished(draft: Path, card: dict[str, Any], config: ExportConfig) -> ModelCard:
    """The card with the precisions that were asked for, and only their files."""
    for precision in set(card["precisions"]) - set(PRECISIONS[config.precision]):
        (draft / card["precisions"].pop(precision)["file"]).unlink()
    # Only now: torch, which the graph was compared with, reads no [CLS] but the first, and pools there.
    card["document"]["mcls"] = config.mcls
    write_card(draft, card)
    return parse_card(card, CARD_NAME)
