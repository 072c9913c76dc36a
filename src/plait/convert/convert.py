"""From a checkpoint to a model folder: read, write the graphs, compare them with the source model, publish. The folder
appears whole or not at all."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from plait.convert.card import card_of
from plait.convert.checkpoint import Checkpoint, Overrides, Reading
from plait.convert.detect import Detected, choose_layout, read_checkpoint
from plait.convert.foreign import wrap_graph
from plait.convert.hub import fetch
from plait.convert.layouts.plait_run import MODEL_LAYOUT, RUN_LAYOUT
from plait.convert.packages import check_packages
from plait.convert.source import TOKENIZER, Source
from plait.convert.token_states import with_token_states
from plait.convert.verify import (
    Agreement,
    Unverified,
    agreement,
    check_agreement,
    source_session,
    verification_texts,
)
from plait.encode.hub_models import parse_hub_name
from plait.encode.load import load_model, open_tokenizer
from plait.encode.model_card import CARD_NAME, CROSS_KIND, FileRecord, GraphRecord, ModelCard, parse_card, read_json
from plait.encode.model_files import check_hash, check_target, record_of
from plait.encode.onnx import OnnxEncoder
from plait.encode.tokenizer import ModelTokenizer
from plait.errors import ConfigError, ModelError
from plait.graphs.heads import SparseVocabulary
from plait.rerank.cross_card import CrossCard, parse_cross_card, read_cross_card
from plait.rerank.cross_encoder import CrossEncoder, load_cross
from plait.rerank.pairs import Pair, PairTokenizer

FP32, FP16, INT8 = "fp32", "fp16", "int8"
FILES = {INT8: "model.int8.onnx", FP16: "model.fp16.onnx", FP32: "model.onnx"}
SHORTHANDS = {"both": (INT8, FP32), "all": (INT8, FP16, FP32)}
PAGE = "README.md"
SOURCE = "the source model"
MAX_SCORE_DIFFERENCE = 1e-3  # of fp32 scores, in standard deviations of the source model's scores
MIN_SCORE_CORRELATION = 0.9  # of int8 scores and those of the source model
N_PAIR_DOCUMENTS = 10

OnStage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Parity:
    """How a precision compares with the source model; or int8 and fp16 with fp32, if the source could not be run."""

    against: str
    # kind -> the largest difference; that of the scores of a reranker is in their standard deviations
    differences: Mapping[str, float]
    cosines: Mapping[str, float]  # kind -> the mean cosine; of scores, the correlation
    agreement: Mapping[str, Agreement] = field(default_factory=dict)  # with `verify`


@dataclass(frozen=True, slots=True)
class Converted:
    """A model folder, and how it came to be."""

    folder: Path
    card: ModelCard | CrossCard
    layout: str
    evidence: str
    readings: tuple[Reading, ...]
    warnings: tuple[str, ...]
    parity: Mapping[str, Parity]  # by precision
    unverified: str = ""  # why the source model could not be run


def convert(
    source: str | Path,
    to: str | Path,
    *,
    layout: str | None = None,
    precision: str = INT8,
    name: str | None = None,
    revision: str = "",
    overrides: Overrides | None = None,
    dims: int | None = None,
    force: bool = False,
    verify: bool = False,
    n_threads: int | None = None,
    device: str | None = None,
    on_stage: OnStage = lambda _: None,
) -> Converted:
    """Converts a checkpoint in a folder, or a model of the hub, to the new model folder `to`.

    `layout` overrides what the files say. `precision` is int8, fp32, fp16, several with commas, both (int8 and fp32) or
    all. The fp32 graph is compared with the source model in torch, and the other precisions with it; `verify` compares
    rankings of real text as well. `device` is "cpu" or "cuda", for the source model; by default the GPU if torch has
    one. On any failure nothing is written.
    """
    parse_precisions(precision)
    check_packages()
    _check_device(device)
    check_target(Path(to), force=force)
    if dims is not None:
        overrides = replace(overrides or Overrides(), dims=dims)
    return convert_source(
        open_source(source, revision, say=on_stage),
        Path(to),
        layout=layout,
        precision=precision,
        name=name,
        overrides=overrides,
        verify=verify,
        n_threads=n_threads,
        device=device,
        on_stage=on_stage,
    )


def _check_device(device: str | None) -> None:
    if device is not None:
        from plait.train.devices import check_device

        check_device(device)


def convert_source(
    source: Source,
    folder: Path,
    *,
    layout: str | None = None,
    precision: str = INT8,
    name: str | None = None,
    overrides: Overrides | None = None,
    verify: bool = False,
    n_threads: int | None = None,
    device: str | None = None,
    on_stage: OnStage = lambda _: None,
) -> Converted:
    """As `convert`, for a checkpoint that is on disk; replaces `folder` if it exists."""
    precisions = parse_precisions(precision)
    detected = choose_layout(source, layout)
    on_stage(f"{source.name}: layout {detected.layout}, by {detected.evidence}")
    with _complete_or_nothing(folder):
        if detected.layout == MODEL_LAYOUT:
            return _copy_model(source, folder, detected)
        if detected.layout == RUN_LAYOUT:
            return _export_run(source, folder, detected, precisions, name, n_threads, on_stage)
        checkpoint = read_checkpoint(source, detected, overrides)
        if overrides is not None and overrides.token_states:
            checkpoint = with_token_states(checkpoint)
        return _Conversion(
            source, checkpoint, detected, folder, precisions, name, verify, n_threads, device, on_stage
        ).run()


def parse_precisions(precision: str) -> tuple[str, ...]:
    """The precisions that an option names: int8, fp32, fp16, several with commas, both or all."""
    chosen = SHORTHANDS.get(precision) or tuple(dict.fromkeys(part.strip() for part in precision.split(",")))
    unknown = [one for one in chosen if one not in FILES]
    if unknown:
        raise ConfigError(f"there is no precision {unknown[0]!r}; choose {', '.join((*FILES, *SHORTHANDS))}")
    return chosen


def open_source(source: str | Path, revision: str = "", *, say: OnStage = lambda _: None) -> Source:
    """The checkpoint in a folder, or the model of the hub that is downloaded now or is in the cache."""
    path = Path(source)
    if path.exists() or isinstance(source, Path):
        if revision:
            raise ConfigError(f"{path} is a folder, which has no revision {revision}; leave out --revision")
        return Source.open(path)
    name = parse_hub_name(source, revision)
    if name is None:
        return Source.open(path)  # raises: there is no such folder
    snapshot = fetch(name, say=say)
    return Source.open(snapshot.folder, snapshot.name, snapshot.commit)


@contextmanager
def _complete_or_nothing(folder: Path) -> Iterator[None]:
    """Removes parents that were made for a folder that was not written, and explains a full disk."""
    missing = [parent for parent in folder.absolute().parents if not parent.exists()]
    try:
        yield
    except BaseException as error:
        for parent in missing:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(
                f"the disk is full: {folder} was not written; make room, or name another folder"
            ) from error
        raise


@dataclass(slots=True)
class _Conversion:
    """One conversion; `run` does the steps in order."""

    source: Source
    checkpoint: Checkpoint
    detected: Detected
    folder: Path
    precisions: tuple[str, ...]
    name: str | None
    verify: bool
    n_threads: int | None
    device: str | None
    on_stage: OnStage

    def run(self) -> Converted:
        from plait.train.checkpoint import draft_folder

        for reading in self.checkpoint.readings:
            self.on_stage(f"  {reading}")
        for warning in self.checkpoint.warnings:
            self.on_stage(f"warning: {warning}")
        with draft_folder(self.folder) as draft:
            written = self._write(draft)
            parity, unverified = self._compare(draft, written)
            card = self._finish(draft, written, parity, unverified)
        return Converted(
            self.folder,
            card,
            self.detected.layout,
            self.detected.evidence,
            self.checkpoint.readings,
            self.checkpoint.warnings,
            {precision: one for precision, one in parity.items() if precision in card.precisions},
            unverified,
        )

    def _write(self, draft: Path) -> dict[str, GraphRecord]:
        """Writes the tokenizer, the graphs and the card; returns the records of the graphs. fp32 is always written,
        because the others are compared with it."""
        (draft / TOKENIZER).write_text(self.checkpoint.tokenizer, encoding="utf-8")
        written = self._write_foreign(draft) if self.checkpoint.graph is not None else self._write_graphs(draft)
        self._write_card(draft, written)
        return written

    def _write_graphs(self, draft: Path) -> dict[str, GraphRecord]:
        from plait.graphs.build import check_family, write_graph
        from plait.graphs.weights import backbone_weights

        checkpoint = self.checkpoint
        check_family(checkpoint.config)
        weights = backbone_weights(checkpoint.config, checkpoint.tensors, length=_longest_input(checkpoint))
        written = {}
        for precision in dict.fromkeys((*self.precisions, FP32)):
            self.on_stage(f"writing the {precision} graph")
            written[precision] = write_graph(
                draft,
                FILES[precision],
                weights,
                checkpoint.config,
                checkpoint.heads,
                precision=precision,
                token_types=checkpoint.token_types,
            )
        return written

    def _write_foreign(self, draft: Path) -> dict[str, GraphRecord]:
        graph = self.checkpoint.graph
        assert graph is not None
        first = draft / FILES[graph.precision]
        self.on_stage(f"writing the {graph.precision} graph")
        wrap_graph(graph, first)
        written = {graph.precision: first}
        if INT8 in self.precisions and graph.precision == FP32:
            self.on_stage("writing the int8 graph")
            wrap_graph(graph, draft / FILES[INT8], int8=True)
            written[INT8] = draft / FILES[INT8]
        elif graph.precision not in self.precisions:
            self.on_stage(f"the graph of {self.source.name} is in {graph.precision}, and stays so")
        records = {}
        for precision, path in written.items():
            record = record_of(path)
            records[precision] = GraphRecord(record.file, record.sha256, record.bytes, optimise="basic")
        return records

    def _write_card(self, draft: Path, precisions: Mapping[str, GraphRecord]) -> dict[str, Any]:
        name = self.name or self.source.name
        card = card_of(self.checkpoint, self.source, name, record_of(draft / TOKENIZER), precisions)
        (draft / CARD_NAME).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return card

    def _compare(self, draft: Path, written: Mapping[str, GraphRecord]) -> tuple[dict[str, Parity], str]:
        from plait.train.devices import torch_device

        session = source_session(self.checkpoint, torch_device(self.device).type)
        if isinstance(session, Unverified):
            self.on_stage(f"warning: the graph is not compared with the source model: {session.reason}")
            if self.verify:
                raise ModelError(f"--verify needs the source model, which cannot be run: {session.reason}")
        if self.checkpoint.is_cross:
            return self._compare_scores(draft, written, session)
        return self._compare_vectors(draft, written, session)

    def _compare_vectors(
        self, draft: Path, written: Mapping[str, GraphRecord], session: Any
    ) -> tuple[dict[str, Parity], str]:
        from plait.train.export.parity import QUERIES, check_fp32, check_int8, compare, sample_documents

        encoders = {one: load_model(draft, precision=one, n_threads=self.n_threads) for one in written}
        exact = next(iter(encoders)) if self.checkpoint.graph is not None else FP32
        unverified, reference = "", encoders[exact]
        if isinstance(session, Unverified):
            unverified = session.reason
        else:
            card = reference.card
            tokenizer = ModelTokenizer(open_tokenizer(draft / TOKENIZER), card)
            reference = OnnxEncoder(card, tokenizer, session)
        against = exact if unverified else SOURCE
        parity = {}
        for precision, encoder in encoders.items():
            if encoder is reference:
                continue
            is_exact = precision == exact
            self.on_stage(f"comparing {precision} with {against}")
            seen = compare(reference, encoder, list(QUERIES), sample_documents())
            (check_fp32 if is_exact else check_int8)(seen)
            ranks = agreement(reference, encoder) if self.verify else {}
            check_agreement(FP32 if is_exact else precision, ranks)
            parity[precision] = Parity(
                against,
                {kind: one.largest for kind, one in seen.embeddings.items()},
                {kind: one.cosine for kind, one in seen.embeddings.items()},
                ranks,
            )
        return parity, unverified

    def _compare_scores(
        self, draft: Path, written: Mapping[str, GraphRecord], session: Any
    ) -> tuple[dict[str, Parity], str]:
        from plait.train.export.parity import QUERIES, sample_documents

        card = read_cross_card(draft)
        encoders = {one: load_cross(draft, precision=one, n_threads=self.n_threads) for one in written}
        unverified = session.reason if isinstance(session, Unverified) else ""
        reference = encoders.get(FP32) or next(iter(encoders.values()))
        if not unverified:
            reference = CrossEncoder(card, PairTokenizer(open_tokenizer(draft / TOKENIZER), card), session)
        pairs = _pairs(verification_texts() if self.verify else (QUERIES, sample_documents()))
        expected = reference.score(pairs)
        spread = float(expected.std()) or 1.0
        against = FP32 if unverified else SOURCE
        parity = {}
        for precision, encoder in encoders.items():
            if encoder is reference:
                continue
            self.on_stage(f"comparing {precision} with {against}")
            scores = encoder.score(pairs)
            difference = float(np.abs(scores - expected).max()) / spread
            correlation = float(np.corrcoef(scores, expected)[0, 1])
            if precision == FP32 and not difference <= MAX_SCORE_DIFFERENCE:
                raise ModelError(
                    f"the scores of the graph differ from those of {against} by {difference:.2g} standard deviations, "
                    f"and {MAX_SCORE_DIFFERENCE:g} is allowed; the model was not written. Please report the checkpoint"
                )
            if not correlation >= MIN_SCORE_CORRELATION:
                raise ModelError(
                    f"the {precision} scores have a correlation of {correlation:.3f} with those of {against}, and "
                    f"{MIN_SCORE_CORRELATION} is required; the model was not written. Convert it with --precision fp32"
                )
            parity[precision] = Parity(against, {"score": difference}, {"score": correlation})
        return parity, unverified

    def _finish(
        self, draft: Path, written: Mapping[str, GraphRecord], parity: Mapping[str, Parity], unverified: str
    ) -> ModelCard | CrossCard:
        """Removes precisions that were not asked for, and writes the card and the page."""
        wanted = {one: record for one, record in written.items() if one in self.precisions} or dict(written)
        for precision in set(written) - set(wanted):
            for record in written[precision].files:
                (draft / record.file).unlink()
        ordered = {one: wanted[one] for one in (*self.precisions, *wanted) if one in wanted}
        card = self._write_card(draft, ordered)
        parsed = parse_cross_card(card, CARD_NAME) if self.checkpoint.is_cross else parse_card(card, CARD_NAME)
        (draft / PAGE).write_text(_page(self, parsed, parity, unverified), encoding="utf-8")
        return parsed


def _longest_input(checkpoint: Checkpoint) -> int:
    if checkpoint.pair is not None:
        return checkpoint.pair.length
    expansion = checkpoint.query.expansion
    sparse = checkpoint.heads.sparse
    # Static weights of queries have no positions.
    is_static = isinstance(sparse, SparseVocabulary) and sparse.query_weights is not None
    n_query = 0 if is_static else checkpoint.query.length
    lengths = [n_query, checkpoint.document.length, expansion.length if expansion else 0]
    mixture = checkpoint.heads.mixture
    return max(*lengths, mixture.n_positions if mixture is not None else 0)


def _pairs(texts: tuple[Sequence[str], Sequence[str]]) -> list[Pair]:
    queries, documents = texts
    return [(query, document) for query in queries for document in documents[:N_PAIR_DOCUMENTS]]


def _page(conversion: _Conversion, card: ModelCard | CrossCard, parity: Mapping[str, Parity], unverified: str) -> str:
    """The page of the model folder: what it is, what was read from where, and how it compares."""
    lines = [f"# {card.name}", "", f"{card.source}, converted by plait from the layout {conversion.detected.layout}."]
    lines += [f"Licence: {card.licence}. {card.attribution}.", "", "| setting | value | read from |", "|---|---|---|"]
    for reading in conversion.checkpoint.readings:
        cells = (reading.what, reading.value.replace("|", "\\|"), reading.source)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"Warning: {warning}." for warning in conversion.checkpoint.warnings)]
    if unverified:
        lines.append(f"Not compared with the source model: {unverified}.")
    for precision, one in parity.items():
        if precision in card.precisions:
            shown = ", ".join(f"{kind} {value:.1e}" for kind, value in one.differences.items())
            lines.append(f"{precision}, largest difference to {one.against}: {shown}.")
    return "\n".join(lines).rstrip() + "\n"


def _copy_model(source: Source, folder: Path, detected: Detected) -> Converted:
    """A model folder of plait is copied: the files that its card names, after their hashes were compared."""
    from plait.train.checkpoint import draft_folder

    raw = read_json(source.path(CARD_NAME))
    is_cross = isinstance(raw, dict) and raw.get("kind") == CROSS_KIND
    card: ModelCard | CrossCard = parse_cross_card(raw, CARD_NAME) if is_cross else parse_card(raw, CARD_NAME)
    records: Sequence[FileRecord] = [
        card.tokenizer,
        *(file for graph in card.precisions.values() for file in graph.files),
    ]
    with draft_folder(folder) as draft:
        for record in records:
            shutil.copyfile(source.path(record.file), draft / record.file)
        shutil.copyfile(source.path(CARD_NAME), draft / CARD_NAME)
        for record in (card.tokenizer, *card.precisions.values()):
            check_hash(draft, record)
    return Converted(folder, card, detected.layout, detected.evidence, (), (), {})


def _export_run(
    source: Source,
    folder: Path,
    detected: Detected,
    precisions: tuple[str, ...],
    name: str | None,
    n_threads: int | None,
    on_stage: OnStage,
) -> Converted:
    """A run of `plait train` is exported as `plait export` does."""
    from plait.train.cross.export import cross_source, export_cross
    from plait.train.export.export import ExportConfig, export_run

    if FP16 in precisions:
        raise ConfigError("a run of plait train is exported to int8 and fp32; leave out fp16")
    pairs = cross_source(source.folder)
    if pairs is not None:
        options: dict[str, Any] = {"int8": INT8 in precisions, "fp32": FP32 in precisions, "force": True}
        made = export_cross(pairs, folder, name=name, **options)
        parity = {one: Parity(SOURCE, {"score": value}, {}) for one, value in made.differences.items()}
        return Converted(folder, made.card, detected.layout, detected.evidence, (), (), parity)
    precision = "both" if len(precisions) > 1 else precisions[0]
    config = ExportConfig(precision=precision, name=name or "", force=True, n_threads=n_threads)
    exported = export_run(source.folder, folder, config, on_stage)
    checks = {"fp32": exported.checks.fp32, "int8": exported.checks.int8}
    parity = {
        one: Parity(
            SOURCE if one == FP32 else FP32,
            {kind: seen.largest for kind, seen in check.embeddings.items()},
            {kind: seen.cosine for kind, seen in check.embeddings.items()},
        )
        for one, check in checks.items()
        if check is not None and one in precisions
    }
    return Converted(folder, exported.card, detected.layout, detected.evidence, (), (), parity)
