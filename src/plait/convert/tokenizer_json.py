"""The tokenizer of a checkpoint: changes that a layout asks for, and the tokens that it names."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer, normalizers

from plait.convert.source import Source
from plait.errors import ModelError

_NAMES = ("mask_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token", "bos_token")


def parse_tokenizer(content: str, where: str) -> Tokenizer:
    """The tokenizer; ModelError if the file is damaged. Padding and truncation are plait's own."""
    try:
        raw = {**json.loads(content), "padding": None, "truncation": None}
        return Tokenizer.from_str(json.dumps(raw, ensure_ascii=False))
    except Exception as error:  # tokenizers raises bare Exception
        raise ModelError(
            f"the tokenizer of {where} cannot be read: {error!s:.300}; fetch the checkpoint again"
        ) from error


def tokenizer_text(tokenizer: Tokenizer) -> str:
    """The content of tokenizer.json, always the same for the same tokenizer."""
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))


def special_names(source: Source, subfolder: str = "") -> dict[str, str]:
    """The tokens that tokenizer_config.json and special_tokens_map.json name: mask_token to "[MASK]"."""
    names: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        settings = source.json_or_empty(f"{subfolder}/{file}" if subfolder else file)
        for name in _NAMES:
            token = settings.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                names[name] = token
    return names


def add_normalizer(tokenizer: Tokenizer, added: Any) -> None:
    """Puts a normalizer before those that the tokenizer has."""
    before = tokenizer.normalizer
    tokenizer.normalizer = added if before is None else normalizers.Sequence([added, before])


def lower_case(tokenizer: Tokenizer) -> None:
    """Texts become lower case before they are tokenized."""
    add_normalizer(tokenizer, normalizers.Lowercase())


def require_token(tokenizer: Tokenizer, token: str, where: str) -> int:
    """The id of a token; ModelError if the vocabulary does not have it."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise ModelError(
            f"{where} names the token {token!r}, which the vocabulary does not have; the library that wrote the "
            f"checkpoint would give it random weights. Save the model again with this token"
        )
    return int(number)


def unknown_token(tokenizer: Tokenizer) -> str | None:
    """The token for pieces that are not in the vocabulary, as tokenizer.json names it."""
    model = json.loads(tokenizer.to_str())["model"]
    if isinstance(model.get("unk_token"), str):
        return str(model["unk_token"])
    number = model.get("unk_id")
    return tokenizer.id_to_token(number) if isinstance(number, int) else None


def without_frame(tokenizer: Tokenizer) -> None:
    """The tokenizer adds no special tokens to a text."""
    content = json.loads(tokenizer.to_str())
    if content.get("post_processor") is not None:
        from tokenizers.processors import TemplateProcessing

        tokenizer.post_processor = TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
