"""Which library wrote a checkpoint: decided by its files and tensors, in an order in which no layout is mistaken for
another. `read_checkpoint` reads it with the reader of its layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts import (
    bge_m3,
    constbert,
    model2vec,
    onnx_folder,
    plait_run,
    pylate,
    reranker,
    sentence_transformers,
    splade,
    stanford_colbert,
    transformers,
    xtr,
)
from plait.convert.source import Source
from plait.errors import ConfigError, ModelError

MODULES, ST_CONFIG, CONFIG = "modules.json", "config_sentence_transformers.json", "config.json"


@dataclass(frozen=True, slots=True)
class Detected:
    """A layout, and the file or tensor that shows it."""

    layout: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout: how it is recognised, how it is read, and what it is, for help and documentation."""

    name: str
    about: str
    detect: Callable[[_Facts], str | None]  # the evidence, or None
    read: Callable[[Source, Overrides | None], Checkpoint] | None  # None: plait's own folders


class _Facts:
    """What detection looks at, read once."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.config: dict[str, Any] = source.json_or_empty(CONFIG)
        self.st: dict[str, Any] = source.json_or_empty(ST_CONFIG)
        self.modules = source.json_list(MODULES) if source.has(MODULES) else []
        self._tensor_names: frozenset[str] | None = None

    @property
    def kinds(self) -> list[str]:
        """The classes of modules.json, without their packages."""
        return [str(entry.get("type", "")).rsplit(".", 1)[-1] for entry in self.modules]

    @property
    def architectures(self) -> list[str]:
        names = self.config.get("architectures")
        return [str(name) for name in names] if isinstance(names, list) else []

    @property
    def tensor_names(self) -> frozenset[str]:
        if self._tensor_names is None:
            self._tensor_names = frozenset(self.source.tensors()) if self.source.has_weights() else frozenset()
        return self._tensor_names


def _plait(facts: _Facts) -> str | None:
    return "plait.json" if plait_run.is_model(facts.source) else None


def _run(facts: _Facts) -> str | None:
    return plait_run.TRAINED if plait_run.is_run(facts.source) else None


def _onnx_colbert(facts: _Facts) -> str | None:
    return onnx_folder.colbert_settings(facts.source)


def _constbert(facts: _Facts) -> str | None:
    if any("ConstBERT" in name for name in facts.architectures):
        return f"{CONFIG}: architectures"
    return f"the tensor {constbert.MIXER}" if constbert.MIXER in facts.tensor_names else None


def _stanford(facts: _Facts) -> str | None:
    if stanford_colbert.ARCHITECTURE in facts.architectures:
        return f"{CONFIG}: architectures"
    if facts.source.has(stanford_colbert.METADATA) and not facts.modules:
        return stanford_colbert.METADATA
    is_st = facts.modules or facts.st
    if not is_st and stanford_colbert.PROJECTION in facts.tensor_names:
        return f"the tensor {stanford_colbert.PROJECTION}"
    return None


def _bge_m3(facts: _Facts) -> str | None:
    heads = [file for file in (bge_m3.MULTI_FILE, bge_m3.SPARSE_FILE) if facts.source.has(file)]
    return " and ".join(heads) or None


def _pylate(facts: _Facts) -> str | None:
    if facts.st.get("model_type") == "MultiVectorEncoder":
        return None
    if any(str(entry.get("type", "")).startswith("pylate.") for entry in facts.modules):
        return f"{MODULES}: pylate"
    if facts.st.get("model_type") == "ColBERT":
        return f"{ST_CONFIG}: model_type"
    keys = [key for key in ("query_prefix", "document_prefix", "skiplist_words") if key in facts.st]
    return f"{ST_CONFIG}: {keys[0]}" if keys else None


def _xtr(facts: _Facts) -> str | None:
    if facts.config.get("model_type") not in ("t5", "mt5"):
        return None
    if "Pooling" in facts.kinds and "Normalize" in facts.kinds:
        return None  # sentence-t5: one vector for each text
    if facts.st.get("model_type") == "MultiVectorEncoder":
        return None  # of sentence-transformers, which has a reader of its own
    if facts.source.has(f"{xtr.PROJECTION}/{CONFIG}") and not facts.modules:
        return f"a T5 with {xtr.PROJECTION}"
    is_named = "xtr" in facts.source.name.lower().rsplit("/", 1)[-1].replace("-", " ").split()
    return "a T5 by the name of xtr" if is_named else None


def _splade(facts: _Facts) -> str | None:
    if facts.st.get("model_type") == "SparseEncoder":
        return f"{ST_CONFIG}: model_type"
    if "SpladePooling" in facts.kinds:
        return f"{MODULES}: SpladePooling"
    is_named = "splade" in facts.source.name.lower()
    if is_named and any(name.endswith("ForMaskedLM") for name in facts.architectures) and not facts.modules:
        return "a masked language model by the name of splade"
    return None


def _model2vec(facts: _Facts) -> str | None:
    if facts.config.get("model_type") == "model2vec" or "StaticModel" in facts.architectures:
        return f"{CONFIG}: model_type"
    return f"{MODULES}: StaticEmbedding" if facts.kinds[:1] == ["StaticEmbedding"] else None


def _reranker(facts: _Facts) -> str | None:
    if facts.st.get("model_type") == "CrossEncoder" and facts.source.has_weights():
        return f"{ST_CONFIG}: model_type"
    is_classifier = any(name.endswith(reranker.ARCHITECTURE) for name in facts.architectures)
    if is_classifier and "Pooling" not in facts.kinds and facts.source.has_weights():
        return f"{CONFIG}: architectures"
    return None


def _sentence_transformers(facts: _Facts) -> str | None:
    return MODULES if facts.modules else None


def _onnx_reranker(facts: _Facts) -> str | None:
    return None if facts.source.has_weights() else onnx_folder.score_output(facts.source)


def _onnx(facts: _Facts) -> str | None:
    return None if facts.source.has_weights() else onnx_folder.find_graph(facts.source)


def _transformers(facts: _Facts) -> str | None:
    return CONFIG if isinstance(facts.config.get("model_type"), str) else None


LAYOUTS = (
    Layout(plait_run.MODEL_LAYOUT, "a model folder of plait", _plait, None),
    Layout(plait_run.RUN_LAYOUT, "a run of plait train", _run, None),
    Layout(onnx_folder.COLBERT_LAYOUT, "LightOn's ONNX folder of a ColBERT", _onnx_colbert, onnx_folder.read_colbert),
    Layout(constbert.LAYOUT, "ConstBERT", _constbert, constbert.read),
    Layout(stanford_colbert.LAYOUT, "Stanford ColBERT, ColBERTv2", _stanford, stanford_colbert.read),
    Layout(bge_m3.LAYOUT, "BGE-M3 of FlagEmbedding", _bge_m3, bge_m3.read),
    Layout(pylate.LAYOUT, "ColBERT of PyLate", _pylate, pylate.read),
    Layout(xtr.LAYOUT, "XTR", _xtr, xtr.read),
    Layout(splade.LAYOUT, "SPLADE, SparseEncoder", _splade, splade.read),
    Layout(model2vec.LAYOUT, "static models: model2vec, StaticEmbedding", _model2vec, model2vec.read),
    Layout(reranker.LAYOUT, "cross-encoders: CrossEncoder, sequence classifiers", _reranker, reranker.read),
    Layout(
        sentence_transformers.LAYOUT,
        "sentence-transformers: dense models and MultiVectorEncoder",
        _sentence_transformers,
        sentence_transformers.read,
    ),
    Layout(onnx_folder.RERANKER_LAYOUT, "a reranker as ONNX", _onnx_reranker, onnx_folder.read_reranker),
    Layout(onnx_folder.DENSE_LAYOUT, "a dense model as ONNX, as fastembed has it", _onnx, onnx_folder.read_dense),
    Layout(transformers.LAYOUT, "a plain transformers encoder", _transformers, transformers.read),
)
BY_NAME = {layout.name: layout for layout in LAYOUTS}


def detect(source: Source) -> Detected:
    """The layout of a folder; ModelError if it is none that plait knows."""
    facts = _Facts(source)
    for layout in LAYOUTS:
        evidence = layout.detect(facts)
        if evidence is not None:
            return Detected(layout.name, evidence)
    _refuse_adapter(source)
    seen = ", ".join(source.files()[:10]) or "nothing"
    raise ModelError(
        f"{source.folder} is no checkpoint that plait knows: it has {seen}. A checkpoint has a {CONFIG} with a "
        f"model_type, weights and a tokenizer; name its layout with --as if it is an unusual one"
    )


def choose_layout(source: Source, name: str | None) -> Detected:
    """The layout that the user names, or that of the folder."""
    if name is None:
        return detect(source)
    if name not in BY_NAME:
        raise ConfigError(f"there is no layout {name!r}; plait knows {', '.join(BY_NAME)}")
    return Detected(name, "given by you")


def read_checkpoint(source: Source, detected: Detected, overrides: Overrides | None = None) -> Checkpoint:
    """The checkpoint, by the reader of its layout. If the user named the layout and it does not fit, the error says
    which layout the folder seems to have."""
    layout = BY_NAME[detected.layout]
    if layout.read is None:
        raise ModelError(f"{source.folder} is {layout.about}, which is not a checkpoint of another library")
    try:
        return layout.read(source, overrides)
    except ModelError as error:
        hint = _other_layout(source, detected)
        if not hint:
            raise
        raise ModelError(f"{error}{hint}") from error


def _other_layout(source: Source, detected: Detected) -> str:
    if detected.evidence != "given by you":
        return ""
    try:
        seen = detect(source)
    except ModelError:
        return ""
    if seen.layout == detected.layout:
        return ""
    return f". The folder was read as {detected.layout}, as you said; by {seen.evidence} it is {seen.layout}"


def _refuse_adapter(source: Source) -> None:
    if source.has("adapter_config.json"):
        raise ModelError(
            f"{source.folder} has an adapter (adapter_config.json) and no model; merge it into its base model first, "
            f"with peft's merge_and_unload"
        )
