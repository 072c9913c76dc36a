"""`ColBERT`: texts to multi vectors, with the arguments and results of `pylate.models.ColBERT`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from plait.checks import check_count, shown
from plait.compat.arguments import device_of, progress_bar, refuse, warn_unused
from plait.compat.loading import encode, load_encoder, model_folder
from plait.compat.pylate.pooling import pool_rows
from plait.encode.model_card import Expansion, ModelCard
from plait.encode.onnx import OnnxEncoder
from plait.errors import ConfigError, InputError

Floats = NDArray[np.float32]
SIMILARITIES = (None, "MaxSim")
EXPANSION_TOKENS = ("[MASK]", "<mask>")
PRECISIONS = {"float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16"}
NO_TORCH = "plait returns numpy arrays and has no torch; use torch.from_numpy on the result"


class ColBERT:
    """A model that gives a vector for each token, loaded by plait.

    `model_name_or_path` is a plait model, a checkpoint of the hub or a local one. Arguments that are None are those of
    the model. `model_kwargs={"dtype": "float32"}` chooses the precision; plait's default is int8. A `device` of None is
    the processor. The prompts of a checkpoint are not part of a plait model: give `prompts` to use their names.
    """

    def __init__(
        self,
        model_name_or_path: str | None = None,
        modules: Iterable[Any] | None = None,
        device: str | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: str | None = None,
        cache_folder: str | None = None,
        trust_remote_code: bool = False,
        revision: str | None = None,
        local_files_only: bool = False,
        token: bool | str | None = None,
        use_auth_token: bool | str | None = None,
        truncate_dim: int | None = None,
        embedding_size: int | None = None,
        bias: bool = False,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        truncation: bool = True,
        query_length: int | None = None,
        document_length: int | None = None,
        do_query_expansion: bool | None = None,
        attend_to_expansion_tokens: bool | None = None,
        skiplist_words: list[str] | None = None,
        model_kwargs: dict[str, Any] | None = None,
        tokenizer_kwargs: dict[str, Any] | None = None,
        config_kwargs: dict[str, Any] | None = None,
        model_card_data: Any | None = None,
    ) -> None:
        refuse("modules", modules, default=None, why="plait runs ONNX graphs; save the model and give its folder")
        if model_name_or_path is None:
            raise ConfigError("model_name_or_path is None; give the name or the folder of a model")
        if similarity_fn_name not in SIMILARITIES:
            raise ConfigError(f"similarity_fn_name is {shown(similarity_fn_name)}; it can only be MaxSim")
        for name, given in (("token", token), ("use_auth_token", use_auth_token)):
            refuse(name, given, default=None, why="set the environment variable HF_TOKEN")
        refuse("truncate_dim", truncate_dim, default=None, why="convert the model with plait convert --dims")
        refuse("bias", bias, default=False, why="plait adds no layer to a model")
        refuse("truncation", truncation, default=True, why="longer texts are always cut")
        for name, settings in (("tokenizer_kwargs", tokenizer_kwargs), ("config_kwargs", config_kwargs)):
            if settings:
                raise ConfigError(f"{name} is {shown(settings)}; plait reads these settings from the model")
        warn_unused("cache_folder", cache_folder, default=None, why="models are kept in PLAIT_HOME")
        warn_unused("trust_remote_code", trust_remote_code, default=False, why="plait runs no code of a checkpoint")
        warn_unused("model_card_data", model_card_data, default=None, why="plait writes no model card")
        precision = _precision(model_kwargs)
        folder = model_folder(model_name_or_path, revision=revision, precision=precision, fetch=not local_files_only)
        encoder = load_encoder(folder, precision=precision, device=device_of("device", device), needs="multi")
        if embedding_size is not None and embedding_size != encoder.spec.multi:
            raise ConfigError(
                f"embedding_size is {shown(embedding_size)}, and {encoder.name} makes vectors of {encoder.spec.multi}; "
                f"plait adds no layer to a model"
            )
        card = _with_lengths(encoder.card, query_length, document_length)
        card = _with_expansion(encoder, card, do_query_expansion, attend_to_expansion_tokens)
        card = _with_markers(card, query_prefix, document_prefix)
        if skiplist_words is not None and card.multi is not None:
            card = replace(card, multi=replace(card.multi, skip=tuple(skiplist_words)))
        self._encoder = encoder.with_card(card)
        self.prompts: dict[str, str] = {"query": "", "document": "", **(prompts or {})}
        self.default_prompt_name = default_prompt_name
        if default_prompt_name is not None and default_prompt_name not in self.prompts:
            raise ValueError(f"default_prompt_name is {default_prompt_name!r}; the prompts are {list(self.prompts)}")
        self.device = device or "cpu"

    def __repr__(self) -> str:
        return f"ColBERT({self._encoder.name!r})"

    @staticmethod
    def load(input_path: str) -> ColBERT:
        """The model in a folder."""
        return ColBERT(model_name_or_path=input_path)

    @property
    def query_length(self) -> int:
        return self._encoder.card.query.length

    @property
    def document_length(self) -> int:
        return self._encoder.card.document.length

    @property
    def query_prefix(self) -> str:
        return self._encoder.card.query.marker

    @property
    def document_prefix(self) -> str:
        return self._encoder.card.document.marker

    @property
    def do_query_expansion(self) -> bool:
        return self._encoder.card.query.expansion is not None

    @property
    def attend_to_expansion_tokens(self) -> bool:
        expansion = self._encoder.card.query.expansion
        return expansion is not None and expansion.attended

    @property
    def skiplist_words(self) -> list[str]:
        multi = self._encoder.card.multi
        return [] if multi is None else list(multi.skip)

    @property
    def similarity_fn_name(self) -> Literal["MaxSim"]:
        return "MaxSim"

    def get_sentence_embedding_dimension(self) -> int | None:
        """The dimensions of each vector."""
        return self._encoder.spec.multi

    def encode(
        self,
        sentences: str | list[str] | list[list[str]],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        precision: Literal["float32", "int8", "uint8", "binary", "ubinary"] = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        padding: bool = False,
        device: str | None = None,
        normalize_embeddings: bool = True,
        is_query: bool = True,
        pool_factor: int = 1,
        protected_tokens: int = 1,
        output_value: str | None = "token_embeddings",
    ) -> Any:
        """The vectors of each text, (rows, dim) float32: a list for a list, one array for one text, lists of lists for
        lists of lists. With `pool_factor` 2 documents keep half of their vectors, and the first `protected_tokens`."""
        check_count("batch_size", batch_size)
        check_count("pool_factor", pool_factor)
        check_count("protected_tokens", protected_tokens, least=0)
        refuse("precision", precision, default="float32", why="an index of plait compresses vectors itself")
        refuse("convert_to_numpy", convert_to_numpy, default=True, why=NO_TORCH)
        refuse("convert_to_tensor", convert_to_tensor, default=False, why=NO_TORCH)
        refuse(
            "normalize_embeddings", normalize_embeddings, default=True, why="models of plait give vectors of length 1"
        )
        refuse("output_value", output_value, default="token_embeddings", why="plait gives the scored vectors only")
        if device is not None and device_of("device", device) != device_of("device", self.device):
            raise ConfigError(f"device is {shown(device)}; the model was loaded on {self.device}, give it there")
        if isinstance(sentences, str):
            texts = [sentences]
        elif not isinstance(sentences, Sequence):
            raise InputError(f"sentences must be a text or a list of texts; got {shown(sentences)}")
        elif sentences and isinstance(sentences[0], list):
            options: dict[str, Any] = {
                "prompt_name": prompt_name,
                "prompt": prompt,
                "batch_size": batch_size,
                "show_progress_bar": show_progress_bar,
                "padding": padding,
                "is_query": is_query,
                "pool_factor": pool_factor,
                "protected_tokens": protected_tokens,
            }
            return [self.encode(part, **options) for part in sentences]
        else:
            texts = list(sentences)  # type: ignore[arg-type]
        rows = self._rows(texts, self._prompt(prompt, prompt_name), is_query, batch_size, bool(show_progress_bar))
        if pool_factor > 1 and not is_query:
            rows = [pool_rows(one, pool_factor, protected_tokens) for one in rows]
        if padding:
            rows = _padded(rows)
        return rows[0] if isinstance(sentences, str) else rows

    def _rows(self, texts: list[str], prompt: str | None, is_query: bool, batch_size: int, show: bool) -> list[Floats]:
        encoder = self._encoder if prompt is None else _with_prompt(self._encoder, prompt)
        kind = "queries" if is_query else "documents"
        with progress_bar(show, f"Encoding {kind}") as on_batch:
            embeddings = encode(encoder, texts, is_query=is_query, batch_size=batch_size, on_batch=on_batch)
        assert embeddings.multi is not None
        return [np.asarray(embeddings.multi[item], np.float32).copy() for item in range(len(embeddings.multi))]

    def _prompt(self, prompt: str | None, prompt_name: str | None) -> str | None:
        if prompt is not None:
            return prompt
        if prompt_name is None:
            prompt_name = self.default_prompt_name
        if prompt_name is None:
            return None
        if prompt_name not in self.prompts:
            raise ValueError(
                f"prompt_name is {prompt_name!r}; the prompts are {list(self.prompts)}. Pass prompts={{...}}"
            )
        return self.prompts[prompt_name]


def _precision(model_kwargs: Mapping[str, Any] | None) -> str | None:
    settings = dict(model_kwargs or {})
    chosen = [settings.pop(name) for name in ("dtype", "torch_dtype") if name in settings]
    if settings:
        raise ConfigError(f"model_kwargs is {shown(settings)}; plait takes dtype only")
    if not chosen or chosen[0] in (None, "auto"):
        return None
    name = str(chosen[0]).removeprefix("torch.")
    if name not in PRECISIONS:
        raise ConfigError(f"dtype is {shown(chosen[0])}; plait has {', '.join(PRECISIONS)}, and int8 if it is left out")
    return PRECISIONS[name]


def _with_lengths(card: ModelCard, query_length: int | None, document_length: int | None) -> ModelCard:
    if query_length is not None:
        check_count("query_length", query_length)
        expansion = card.query.expansion
        if expansion is not None:
            expansion = replace(expansion, length=query_length)
        card = replace(card, query=replace(card.query, length=query_length, expansion=expansion))
    if document_length is not None:
        check_count("document_length", document_length)
        overlap = min(card.document.overlap, document_length // 4)
        card = replace(card, document=replace(card.document, length=document_length, overlap=overlap))
    return card


def _with_expansion(encoder: OnnxEncoder, card: ModelCard, wanted: bool | None, attended: bool | None) -> ModelCard:
    expansion = card.query.expansion
    if wanted is False:
        expansion = None
    elif wanted and expansion is None:
        known = [token for token in EXPANSION_TOKENS if encoder.tokenizer.has_token(token)]
        if not known:
            raise ConfigError(f"do_query_expansion is True, and the vocabulary of {card.name} has no mask token")
        expansion = Expansion(known[0], card.query.length, attended=False)
    if attended is not None and expansion is not None:
        expansion = replace(expansion, attended=attended)
    return replace(card, query=replace(card.query, expansion=expansion))


def _with_markers(card: ModelCard, query: str | None, document: str | None) -> ModelCard:
    if query is not None:
        card = replace(card, query=replace(card.query, marker=query))
    if document is not None:
        card = replace(card, document=replace(card.document, marker=document))
    return card


def _with_prompt(encoder: OnnxEncoder, prompt: str) -> OnnxEncoder:
    card = encoder.card
    query = replace(card.query, prefix=prompt, joined=True)
    return encoder.with_card(replace(card, query=query, document=replace(card.document, prefix=prompt, joined=True)))


def _padded(rows: list[Floats]) -> list[Floats]:
    """Zeros after the rows of each text, up to the longest: (1, longest, dim) each, as PyLate returns them."""
    longest = max(map(len, rows), default=0)
    return [np.pad(one, ((0, longest - len(one)), (0, 0)))[np.newaxis] for one in rows]
