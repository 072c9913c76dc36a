"""From a model name or folder to an encoder. onnxruntime and tokenizers are imported when a model is loaded, not
before."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.checks import as_path, check_count, shown
from plait.encode.hub_models import HubName, cached_model, hub_name, known_commit, models_home
from plait.encode.model_card import BY_TERM, CARD_NAME, CROSS_KIND, STATIC, GraphRecord, ModelCard, read_card
from plait.encode.model_files import HashCheck, check_hash, model_file
from plait.encode.onnx import OnnxEncoder
from plait.encode.protocol import LIVE, EmbeddingSpec, Encoder
from plait.encode.shared_models import model_key, shared_model
from plait.encode.sparse_terms import QUERY_OUTPUT, TERMS_OUTPUT
from plait.encode.tokenizer import ModelTokenizer
from plait.errors import ConfigError, EncoderMismatchError, ModelError
from plait.locks import ForkSafeLock

if TYPE_CHECKING:
    from plait.encode.preload import ModelPreload

BUNDLED = Path(__file__).parent.parent / "models"
DEFAULT_MODEL = "plait-small"
# A data package announces its model in this entry point group: the model's name, and the package with its files.
ENTRY_POINT_GROUP = "plait.models"
# The models that this project publishes as packages of the same name; a clone has them under models/.
MODEL_PACKAGES = ("plait-gte-small", "plait-multilingual")
DEFAULT_PRECISION = "int8"
CONVERTER = "plait.convert.cache"  # the module that converts models of the hub
EXTERNAL = "arrays"  # the fingerprint of an index whose embeddings are made by its caller


def load_model(
    model: str | Path | None = None,
    *,
    precision: str | None = None,
    n_threads: int | None = None,
    device: str | None = None,
) -> OnnxEncoder:
    """Loads the encoder of a model: the default model, a bundled or installed one by name, or a folder by path.

    `precision` is int8 by default, or the first that the folder has. `n_threads` is the number of threads of the model;
    None uses all processors of this process. `device` is "cpu", which is the default, or "cuda", which needs
    the package onnxruntime-gpu; its default precision is fp16, or else fp32.
    """
    check_device(device)
    folder = find_model(model, precision=precision)
    card = read_card(folder)
    record = choose_precision(card.precisions, card.name, folder, precision, device)
    graph, tokenizer_file = model_file(folder, record), model_file(folder, card.tokenizer)
    check = HashCheck(folder, [card.tokenizer, record], background=comes_with_plait(folder))
    tokenizer = open_tokenizer(tokenizer_file)
    session = open_session(graph, n_threads, optimise=record.optimise or "none", device=device)
    # The graph of static queries is a lookup, which a graphics card would not do faster.
    queries = open_session(model_file(folder, record.query), n_threads) if record.query else None
    check.wait()
    _check_outputs(session, card, graph)
    return OnnxEncoder(card, ModelTokenizer(tokenizer, card), session, queries, is_on_cpu=device in (None, CPU))


def shared_encoder(
    model: str | Path | None = None,
    *,
    precision: str | None = None,
    n_threads: int | None = None,
    device: str | None = None,
) -> OnnxEncoder:
    """As `load_model`, but one encoder for all users of this process."""
    check_device(device)
    folder = find_model(model, precision=precision)
    card = read_card(folder)
    files = [card.tokenizer, *choose_precision(card.precisions, card.name, folder, precision, device).files]
    key = (*model_key(folder, card.fingerprint, files, n_threads), device or CPU)
    return shared_model(key, lambda: load_model(model, precision=precision, n_threads=n_threads, device=device))


def find_model(model: str | Path | None = None, *, precision: str | None = None, fetch: bool = True) -> Path:
    """The folder of a model: bundled by name, a folder by path, installed as a data package by name, or a model of the
    hub by its name, `ORG/NAME` or `ORG/NAME@REVISION`, which is fetched and converted if it is not in the cache.

    ModelError if there is none; for a published model that is not installed, the message says how to install it. With
    `fetch=False` no model is fetched.
    """
    if model is None:
        return BUNDLED / DEFAULT_MODEL
    path = as_path("model", model)
    name = str(model)
    if name in bundled_models():
        return BUNDLED / name
    if (path / CARD_NAME).is_file():
        return path
    installed = installed_models()
    if name in installed:
        return installed[name]
    if name in MODEL_PACKAGES:
        raise ModelError(
            f"the model {name} is not installed: pip install {name}, or from a clone of plait: pip install "
            f"./models/{name}"
        )
    if path.is_dir():
        return path
    if (called := hub_name(model)) is not None:
        return find_hub_model(called, precision, fetch=fetch)
    known = ", ".join([*bundled_models(), *sorted(installed)])
    raise ModelError(
        f"there is no model {name!r}: it is not a folder, and the bundled and installed models are {known}"
    )


def find_hub_model(name: HubName, precision: str | None, *, fetch: bool) -> Path:
    """The folder of a converted model of the hub; it is fetched and converted now if it is not in the cache and
    `fetch` is set."""
    folder = cached_model(name, precision, DEFAULT_PRECISION)
    if folder is not None:
        return folder
    if not fetch:
        raise ModelError(f"the model {name} is not in the cache {models_home()}; name it to fetch it (--model {name})")
    # Conversion is built on everything here. It is looked up by its name when a model has to be converted.
    converted: Path = importlib.import_module(CONVERTER).convert_named(name, precision)
    return converted


def installed_models() -> dict[str, Path]:
    """The folders of the encoders that are installed as data packages, by name."""
    return {name: folder for name, folder in _installed().items() if not _is_cross(folder)}


def installed_cross_encoders() -> dict[str, Path]:
    """The folders of the cross-encoders that are installed as data packages, by name."""
    return {name: folder for name, folder in _installed().items() if _is_cross(folder)}


@functools.cache  # reading every installed package's metadata takes tens of milliseconds
def _installed() -> dict[str, Path]:
    folders = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        spec = importlib.util.find_spec(entry.value)
        if spec is not None and spec.origin is not None:
            folders[entry.name] = Path(spec.origin).parent
    return folders


def _is_cross(folder: Path) -> bool:
    card = folder / CARD_NAME
    return card.is_file() and f'"{CROSS_KIND}"' in card.read_text(encoding="utf-8")


def bundled_models() -> list[str]:
    """The names of the encoders in plait's wheel."""
    return sorted(card.parent.name for card in BUNDLED.glob(f"*/{CARD_NAME}"))


def is_trusted_name(model: str) -> bool:
    """Whether an index may choose this model: bundled, installed, published and still to be installed, or a model of
    the hub that is in the cache, because its user named it before. An index never causes a download."""
    if model in bundled_models() or model in MODEL_PACKAGES or model in installed_models():
        return True
    called = hub_name(model)
    return called is not None and cached_model(called, None, DEFAULT_PRECISION) is not None


def known_models() -> set[str]:
    """All model names: bundled, installed, and published but not installed."""
    return {*bundled_models(), *installed_models(), *MODEL_PACKAGES}


def verify_model(model: str | Path | None = None) -> list[str]:
    """Compares the hash of every file of a model with the card; returns the names of the files.

    ModelError for a file that differs. Loading a model does the same for the files that it loads.
    """
    folder = find_model(model)
    card = read_card(folder)
    records = (card.tokenizer, *card.precisions.values())
    for record in records:
        check_hash(folder, record)
    return [file.file for record in records for file in record.files]


def comes_with_plait(folder: Path) -> bool:
    """Whether a model folder is part of an installed package, as plait's own code is."""
    return folder.parent == BUNDLED or folder in _installed().values()


def choose_precision(
    precisions: Mapping[str, GraphRecord], name: str, folder: Path, precision: str | None, device: str | None = None
) -> GraphRecord:
    """The graph of a precision; None is the default of the device. ModelError if the model does not have it."""
    if precision is None:
        # Graphics cards have no kernels for plait's int8, and would leave it to the processor.
        preferred = (DEFAULT_PRECISION,) if (device or CPU) == CPU else ("fp16", "fp32", DEFAULT_PRECISION)
        precision = next((name for name in (*preferred, *precisions) if name in precisions), DEFAULT_PRECISION)
    if precision in precisions:
        return precisions[precision]
    available = ", ".join(precisions) or "none"
    raise ModelError(
        f"the model {name} in {folder} has no precision {precision!r}; it has {available}. "
        f"docs/models.md says how to build a model folder with more"
    )


def open_tokenizer(path: Path) -> Any:
    """The tokenizer in a file."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception
        raise ModelError(f"{path} cannot be read: {error}; fetch or build the model again") from error


CPU, CUDA = "cpu", "cuda"
PROVIDERS = {CPU: "CPUExecutionProvider", CUDA: "CUDAExecutionProvider"}


def check_device(device: str | None) -> None:
    """Raises ConfigError for a device that plait does not know, or that onnxruntime does not have here."""
    if device is None or device == CPU:
        return
    if not isinstance(device, str) or device not in PROVIDERS:
        raise ConfigError(f"device is {shown(device)}; choose one of {', '.join(PROVIDERS)}")
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]

    available = onnxruntime.get_available_providers()
    if PROVIDERS[device] not in available:
        raise ConfigError(
            f"device is {device!r}, and this onnxruntime {onnxruntime.__version__} runs on {', '.join(available)} "
            f"only; pip uninstall onnxruntime, then pip install onnxruntime-gpu, or leave device out"
        )


def open_session(graph: Path, n_threads: int | None, *, optimise: str = "none", device: str | None = None) -> Any:
    """A session of onnxruntime. `optimise` says what it may change in the graph first: none, basic or all."""
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]

    options = session_options(n_threads, optimise=optimise)
    device = device or CPU
    providers = list(dict.fromkeys((PROVIDERS[device], PROVIDERS[CPU])))
    try:
        session = onnxruntime.InferenceSession(str(graph), options, providers=providers)
    except Exception as error:  # onnxruntime's errors share no public class
        raise ModelError(f"{graph} cannot be run: {error}; fetch or build the model again") from error
    if PROVIDERS[device] not in session.get_providers():
        # onnxruntime goes on with the processor if the libraries of the device cannot be loaded.
        raise ConfigError(
            f"device is {device!r}, but onnxruntime could not start it and runs on {', '.join(session.get_providers())}"
            f"; install the versions of CUDA and cuDNN that onnxruntime {onnxruntime.__version__} needs, or leave "
            f"device out"
        )
    return session


def session_options(n_threads: int | None, *, optimise: str = "none") -> Any:
    """The options with which onnxruntime runs every graph."""
    if n_threads is not None:
        check_count("n_threads", n_threads)
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads or available_cpus()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.use_deterministic_compute = True
    # plait exports graphs in the form in which they should run. Rewriting them takes time at every start and undoes
    # some of that. Graphs of other exporters leave the fusion of operators to the runtime.
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = {
        "none": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "all": levels.ORT_ENABLE_ALL,
    }[optimise]
    # Idle threads that spin take processor time from other work, such as writing the index.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _check_outputs(session: Any, card: ModelCard, graph: Path) -> None:
    """ModelError if the graph lacks an output that the card promises, or has it with other dimensions."""
    outputs = {output.name: output.shape for output in session.get_outputs()}
    for name in _sparse_outputs(card):
        if name not in outputs:
            raise ModelError(f"{graph} should have an output {name!r}, as {CARD_NAME} says; its outputs are {outputs}")
    fixed = card.spec.multi if card.spec.fixed else None
    terms = card.sparse.vocabulary if card.sparse and card.sparse.output == BY_TERM else None
    wanted = (("dense", card.spec.dense), ("multi", card.spec.multi), ("fixed", fixed), ("sparse", terms))
    for name, dim in wanted:
        if dim is None:
            continue
        # Other exporters may not write the number of dimensions; encoding checks it then.
        seen = outputs[name][-1] if outputs.get(name) else None
        if name not in outputs or (seen != dim and not (isinstance(seen, str) or (seen is None and outputs[name]))):
            raise ModelError(
                f"{graph} should have an output {name!r} of {dim} dimensions, as {CARD_NAME} says; its outputs are "
                f"{outputs}"
            )


def _sparse_outputs(card: ModelCard) -> list[str]:
    if card.sparse is None:
        return []
    more = [TERMS_OUTPUT] if card.sparse.forms else []
    return ["sparse", *more, *([QUERY_OUTPUT] if card.sparse.query == STATIC else [])]


def available_cpus() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_encoder(encoder: object) -> None:
    """Raises ConfigError for an object that lacks a member of the `Encoder` protocol."""
    members = ("fingerprint", "spec", "encode_queries", "encode_documents")
    missing = [name for name in members if not hasattr(encoder, name)]
    if missing or isinstance(encoder, type):
        what = f"has no {', '.join(missing)}" if missing else "is a class; make an object of it"
        raise ConfigError(f"encoder {shown(encoder)} {what}; it must have {', '.join(members)}, as plait.Encoder says")


class LazyEncoder:
    """The encoder of an index: given by the caller, or loaded when text is first encoded. Fingerprint and spec are
    known before, from the model card, which is quick to read and needs no model library. Threads may share it."""

    def __init__(
        self,
        model: str | Path | None,
        encoder: Encoder | None,
        *,
        precision: str | None,
        n_threads: int,
        preload: ModelPreload | None = None,
        device: str | None = None,
    ) -> None:
        check_device(device)
        self._model, self._encoder, self._preload = model, encoder, preload
        self._is_given, self._is_released = encoder is not None, False
        self._lock = ForkSafeLock()
        self._precision, self._device, self.n_threads = precision, device, n_threads
        self._external: Path | None = None  # the index, if its embeddings are made by its caller
        self._refusal = ""  # why the model that the index names is not loaded

    @property
    def name(self) -> str | None:
        """The name by which an index finds its model again; None if the encoder has no name."""
        encoder = self._encoder
        if encoder is not None:
            return getattr(encoder, "name", None)
        if self._model is None:
            return self._card().name
        called = hub_name(self._model)
        if called is None or Path(self._model).is_dir():
            return str(self._model)
        self._card()  # fetches and converts the model if that was not done
        return str(HubName(called.name, known_commit(called) or called.revision))

    def fingerprint(self) -> str:
        encoder = self._encoder
        return self._card().fingerprint if encoder is None else encoder.fingerprint

    def spec(self) -> EmbeddingSpec:
        encoder = self._encoder
        return self._card().spec if encoder is None else encoder.spec

    def exclude_from_hybrid(self) -> tuple[str, ...]:
        """The kinds of embeddings that hybrid search leaves out unless they are given a weight."""
        encoder = self._encoder
        card = self._card() if encoder is None else getattr(encoder, "card", None)
        sparse = getattr(card, "sparse", None)
        return ("sparse",) if sparse is not None and sparse.exclude_from_hybrid else ()

    def bind(
        self,
        index: Path,
        *,
        fingerprint: str,
        model: object,
        imported: object = None,
        spec: EmbeddingSpec | None = None,
    ) -> None:
        """Use the encoder for the index that was built with this fingerprint and model name; EncoderMismatchError if
        the caller chose another.

        An index may come from a stranger, so it chooses only among the bundled and installed models, and the models of
        the hub that are in the cache. A folder that it names is loaded only if the caller names it too, and a model of
        the hub is fetched only then.

        `imported` is the name of the model of an imported index, empty if that is unknown. Its vectors have no
        fingerprint, so the caller may choose any model that makes vectors of the sizes of `spec`.
        """
        chosen = self._model is not None or self._encoder is not None
        if fingerprint == EXTERNAL and imported is not None:
            if chosen:
                self._check_sizes(index, spec)
                return
            made_by = f"{imported!s:.200}" if imported else "a model that its source does not name"
            self._refusal = (
                f"index {index} was imported, and its vectors were made by {made_by}; to search it with texts, pass "
                f"that model with model=... (--model for a command), after plait convert if it is not a plait model. "
                f"Mode bm25 and search_embeddings need no model"
            )
            return
        if fingerprint == EXTERNAL:
            self._external = index
            if not chosen:
                return
        elif not chosen and fingerprint.startswith(LIVE):
            self._refusal = (
                f"index {index} was built with the live encoder {model!s:.300} ({fingerprint:.80}), which plait cannot "
                f"load by itself; pass encoder=..., made as before with plait.adapters, to encode texts"
            )
            return
        elif not chosen and (model is None or (isinstance(model, str) and is_trusted_name(model))):
            # A model of the hub is found now, so that it is not fetched later.
            self._model = model if hub_name(model) is None else find_model(model, fetch=False)
        elif not chosen:
            self._refusal = (
                f"index {index} names the model {model!r:.300}, which is neither bundled nor installed nor in the "
                f"cache, and plait loads no folder and fetches no model because an index names it; pass "
                f"model={model!r:.300} (--model {model!s:.300} for a command) if you trust it"
            )
            return
        if not self._is_same(fingerprint):
            raise EncoderMismatchError(
                f"index {index} was built with encoder {fingerprint!r}, but this one is {self.fingerprint()!r}: their "
                f"vectors cannot be compared. Open the index with the first encoder, or build a new index"
            )

    def _check_sizes(self, index: Path, spec: EmbeddingSpec | None) -> None:
        sizes, stored = self.spec().sizes(), {} if spec is None else spec.sizes()
        if any(sizes.get(kind) != size for kind, size in stored.items()):
            raise EncoderMismatchError(
                f"the imported index {index} has vectors of the sizes {stored}, but the model makes {sizes}; give the "
                f"model that made them"
            )

    def _is_same(self, fingerprint: str) -> bool:
        matches = getattr(self._encoder, "matches", None)
        return self.fingerprint() == fingerprint if matches is None else bool(matches(fingerprint))

    def get(self) -> Encoder:
        """The encoder, loaded now if it was not."""
        encoder = self._encoder
        if encoder is None:
            if self._refusal:
                raise ModelError(self._refusal)
            if self._external is not None:
                raise ConfigError(
                    f"index {self._external} was built from embeddings made elsewhere, so it has no encoder; "
                    f"search it with search_embeddings, add to it with add_embeddings"
                )
            with self._lock:
                encoder = self._encoder or self._load()
                if not self._is_released:
                    self._encoder = encoder
        return encoder

    def release(self) -> None:
        """Forgets a loaded encoder, so that it is freed with its last user; `get` still gives it."""
        with self._lock:
            self._is_released, self._preload = True, None
            if not self._is_given:
                self._encoder = None

    def _load(self) -> Encoder:
        preload = self._preload
        if (
            preload is not None
            and find_model(preload.model) == find_model(self._model)
            and preload.precision == self._precision
            and (self._device or CPU) == CPU
        ):
            return preload.encoder()
        return shared_encoder(self._model, precision=self._precision, n_threads=self.n_threads, device=self._device)

    def _card(self) -> ModelCard:
        return read_card(find_model(self._model, precision=self._precision))
