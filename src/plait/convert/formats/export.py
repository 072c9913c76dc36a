"""`plait export --format`: a trained model as a checkpoint of another library. The folder is written, read back as
`plait convert` reads it, and compared with the model in torch; it appears only if both agree."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from plait.convert.checkpoint import Checkpoint
from plait.convert.convert import FP32, MAX_SCORE_DIFFERENCE, OnStage, convert_source
from plait.convert.formats import flag_embedding, pylate, sentence_transformers, stanford
from plait.convert.formats.common import versions, write_json
from plait.convert.source import Source
from plait.convert.trained import cross_checkpoint, encoder_checkpoint
from plait.encode.load import load_model
from plait.errors import ConfigError, ModelError
from plait.rerank.cross_encoder import load_cross
from plait.rerank.pairs import PairTokenizer
from plait.train.checkpoint import draft_folder
from plait.train.cross.export import cross_source
from plait.train.cross.model import is_cross_checkpoint, load_cross_checkpoint
from plait.train.cross.scorers import TorchPairScorer
from plait.train.devices import torch_device
from plait.train.export.export import torch_encoder
from plait.train.export.parity import QUERIES, check_fp32, compare, sample_documents
from plait.train.export.trained import check_positions, read_trained

PLAIT = "plait"
FORMATS: dict[str, ModuleType] = {
    module.NAME: module for module in (sentence_transformers, pylate, stanford, flag_embedding)
}
KINDS = ("dense", "sparse", "multi")
RECORD = "plait_export.json"  # marks a folder that plait wrote, which --force may replace
PAGE = "README.md"
N_PAIR_DOCUMENTS = 6

_LOAD = {
    "sentence-transformers": {
        "dense": "from sentence_transformers import SentenceTransformer\nmodel = SentenceTransformer({folder!r})",
        "multi": "from sentence_transformers import MultiVectorEncoder\nmodel = MultiVectorEncoder({folder!r})",
        "score": "from sentence_transformers import CrossEncoder\nmodel = CrossEncoder({folder!r})",
    },
    "pylate": {"multi": "from pylate import models\nmodel = models.ColBERT({folder!r})"},
    "stanford": {
        "multi": "from colbert.infra import ColBERTConfig\nfrom colbert.modeling.checkpoint import Checkpoint\n"
        "model = Checkpoint({folder!r}, ColBERTConfig())"
    },
    "flagembedding": {
        "dense": "from FlagEmbedding import BGEM3FlagModel\nmodel = BGEM3FlagModel({folder!r})",
        "score": "from FlagEmbedding import FlagReranker\nmodel = FlagReranker({folder!r})",
    },
}


@dataclass(frozen=True, slots=True)
class ExportedCheckpoint:
    """A folder in the format of another library."""

    folder: Path
    form: str
    layout: str  # as `plait convert` detects it
    notes: tuple[str, ...]  # what the user should know
    differences: Mapping[str, float]  # kind -> the largest difference between the model in torch and the folder


def export_checkpoint(
    run: str | Path,
    to: str | Path,
    form: str,
    *,
    weights: str = "",
    drop: Sequence[str] = (),
    licence: str = "",
    force: bool = False,
    device: str | None = None,
    on_stage: OnStage = lambda _: None,
) -> ExportedCheckpoint:
    """Writes the model of a run as a checkpoint of another library. `form` is one of `FORMATS`; `drop` names kinds of
    embeddings to leave out. ConfigError if the format cannot hold the model; then nothing is written."""
    module = _module(form)
    folder = Path(to)
    check_export_target(folder, force=force)
    chosen = torch_device(device)
    on_stage(f"reading {run}")
    checkpoint, compare_with = _read(Path(run), weights, chosen)
    checkpoint = _without(checkpoint, drop)
    _check_kinds(checkpoint, form)
    with draft_folder(folder) as draft:
        on_stage(f"writing the format {form}")
        notes = list(module.write(checkpoint, draft))
        _write_page(draft, folder, checkpoint, form, licence)
        on_stage("reading it back, and comparing with torch")
        layout, differences = _read_back(draft, checkpoint, compare_with)
        write_json(draft / RECORD, {"format": form, "model": checkpoint.name, "versions": versions()})
    return ExportedCheckpoint(folder, form, layout, tuple(notes), differences)


def check_export_target(folder: Path, *, force: bool) -> None:
    """ConfigError if the folder exists, unless plait wrote it in such a format and `force` is set."""
    if not folder.exists() and not folder.is_symlink():
        return
    is_known = (folder / RECORD).is_file()
    if not force:
        hint = "name another folder, or replace it with --force" if is_known else "name another folder"
        raise ConfigError(f"{folder} exists; {hint}")
    if not is_known:
        raise ConfigError(f"{folder} exists and has no {RECORD}; --force replaces only folders that plait exported")


def _module(form: str) -> ModuleType:
    if form not in FORMATS:
        raise ConfigError(f"there is no format {form!r}; choose one of {', '.join((PLAIT, *FORMATS))}")
    return FORMATS[form]


Compare = Callable[[Path], dict[str, float]]  # a model folder -> the differences of its vectors or scores from torch's


def _read(run: Path, weights: str, device: torch.device) -> tuple[Checkpoint, Compare]:
    source = cross_source(run, weights)
    if source is not None:
        if not is_cross_checkpoint(source):
            raise ConfigError(f"{source} is a sequence classifier of transformers already; other libraries load it")
        model, tokenizer = load_cross_checkpoint(source)
        model.to(device)
        scorer = TorchPairScorer(model, PairTokenizer(tokenizer, model.config.pair_input))
        return cross_checkpoint(model, tokenizer, source), lambda folder: _compare_scores(scorer, folder)
    trained = read_trained(run, weights)
    check_positions(trained.model)
    trained.model.to(device)

    def compare_vectors(folder: Path) -> dict[str, float]:
        parity = compare(
            load_model(folder, precision=FP32), torch_encoder(trained, device=device), QUERIES, sample_documents()
        )
        check_fp32(parity)
        return {kind: seen.largest for kind, seen in parity.embeddings.items()}

    return encoder_checkpoint(trained, run), compare_vectors


def _compare_scores(scorer: TorchPairScorer, folder: Path) -> dict[str, float]:
    encoder = load_cross(folder, precision=FP32)
    pairs = [(query, document) for query in QUERIES for document in sample_documents()[:N_PAIR_DOCUMENTS]]
    expected = scorer.score(pairs)
    if encoder.card.activation:
        expected = (1 / (1 + np.exp(-expected))).astype(np.float32)
    difference = float(np.abs(encoder.score(pairs) - expected).max() / (float(expected.std()) or 1.0))
    if not difference <= MAX_SCORE_DIFFERENCE:
        raise ModelError(
            f"the scores of the exported folder differ from torch's by {difference:.2g} standard deviations, and "
            f"{MAX_SCORE_DIFFERENCE:g} is allowed; nothing was written. Please report the model"
        )
    return {"score": difference}


def _without(checkpoint: Checkpoint, drop: Sequence[str]) -> Checkpoint:
    heads = checkpoint.heads
    for kind in drop:
        if kind not in KINDS:
            raise ConfigError(f"{kind!r} is no kind of embedding; drop {', '.join(KINDS)}")
        if getattr(heads, kind) is None:
            raise ConfigError(f"the model has no {kind} vectors to drop; it has {', '.join(_kinds(checkpoint))}")
        heads = replace(heads, **{kind: None})
    if heads.multi is None:
        heads = replace(heads, mixture=None)
    if heads.sparse is None and heads.multi is None:
        heads = replace(heads, token_adapter=None)
    return replace(checkpoint, heads=heads, multi=None if heads.multi is None else checkpoint.multi)


def _kinds(checkpoint: Checkpoint) -> list[str]:
    return [kind for kind in (*KINDS, "score") if getattr(checkpoint.heads, kind) is not None]


def _check_kinds(checkpoint: Checkpoint, form: str) -> None:
    kinds = _kinds(checkpoint)
    if not kinds:
        raise ConfigError("all kinds of embeddings are dropped; keep one")
    possible: tuple[tuple[str, ...], ...] = FORMATS[form].KINDS
    if tuple(kinds) not in possible:
        fitting = [name for name, module in FORMATS.items() if tuple(kinds) in module.KINDS]
        raise ConfigError(
            f"the model has {_words(kinds)}, and the format {form} holds "
            f"{' or '.join(_words(one) for one in possible)}; choose --format {' or '.join([*fitting, PLAIT])}"
            f"{_drop_advice(kinds, possible)}"
        )
    if checkpoint.heads.token_adapter is not None:
        raise ConfigError("the model has a token adapter, which is plait's own; export it with --format plait")


def _words(kinds: Sequence[str]) -> str:
    if list(kinds) == ["score"]:
        return "the score of a cross-encoder"
    shown = kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} and {kinds[-1]}"
    return f"{shown} vectors"


def _drop_advice(kinds: Sequence[str], possible: Sequence[Sequence[str]]) -> str:
    for wanted in possible:
        if set(wanted) < set(kinds):
            dropped = " ".join(f"--drop {kind}" for kind in kinds if kind not in wanted)
            return f", or leave kinds out with {dropped}"
    return ""


def _read_back(draft: Path, checkpoint: Checkpoint, compare_with: Compare) -> tuple[str, dict[str, float]]:
    """Converts the folder as any other checkpoint, and compares the result with torch."""
    with tempfile.TemporaryDirectory(dir=draft.parent, prefix=f".{draft.name}-") as scratch:
        made = convert_source(Source.open(draft, checkpoint.name), Path(scratch) / "model", precision=FP32)
        return made.layout, compare_with(made.folder)


def _write_page(draft: Path, folder: Path, checkpoint: Checkpoint, form: str, licence: str) -> None:
    code = _LOAD[form][_kinds(checkpoint)[0]].format(folder=folder.name)
    head = f"---\nlicense: {json.dumps(licence)}\n---\n\n" if licence else ""
    text = f"{head}# {checkpoint.name}\n\nTrained with plait, written by `plait export --format {form}`.\n\n"
    (draft / PAGE).write_text(f"{text}```python\n{code}\n```\n", encoding="utf-8")
