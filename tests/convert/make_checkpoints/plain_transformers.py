"""Layouts that have no library of their own: XTR and ConstBERT, computed with transformers alone.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.plain_transformers

with transformers 5.23.0 and torch 2.13.0. XTR: lower case, T5 encoder, `2_Dense`, rows of tokens that are not padding,
length 1. ConstBERT: a ColBERT whose documents are padded to a fixed length and mixed by `doc_project`, either along
the tokens ([32, 250] in the published checkpoint) or flattened, as the paper writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, T5EncoderModel

from convert.make_checkpoints.backbones import DIM, HIDDEN, LENGTH, randomise, save_backbone
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder

XTR_QUERY = 32
CONST_QUERY, CONST_DOCUMENT, CONST_ROWS = 24, 40, 6


def batches(texts: Sequence[str], size: int) -> list[list[str]]:
    return [list(texts[start : start + size]) for start in range(0, len(texts), size)]


def save_dense(folder: Path) -> None:
    dense = torch.nn.Linear(HIDDEN, DIM, bias=False)
    randomise(dense, seed=100)
    folder.mkdir()
    torch.save({"linear.weight": dense.weight.detach()}, folder / "pytorch_model.bin")
    identity = "torch.nn.modules.linear.Identity"
    config = {"in_features": HIDDEN, "out_features": DIM, "bias": False, "activation_function": identity}
    (folder / "config.json").write_text(json.dumps(config))


def make_xtr(name: str) -> None:
    folder = save_backbone("t5", checkpoint_folder(name), all_texts(), auto="AutoModelForSeq2SeqLM")
    save_dense(folder / "2_Dense")
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), T5EncoderModel.from_pretrained(folder).eval()
    weight = torch.load(folder / "2_Dense" / "pytorch_model.bin", weights_only=True)["linear.weight"]

    @torch.no_grad()
    def encode(texts: Sequence[str], size: int, length: int) -> list[Any]:
        items = []
        for batch in batches(texts, size):
            lower = [text.lower() for text in batch]
            inputs = tokenizer(lower, padding=True, truncation=True, max_length=length, return_tensors="pt")
            states = encoder(inputs.input_ids, attention_mask=inputs.attention_mask).last_hidden_state
            rows = F.normalize(states @ weight.T, dim=-1)
            items += [row[ids != 0].numpy() for row, ids in zip(rows, inputs.input_ids, strict=True)]
        return items

    golden = Golden(name, "xtr", "transformers", "maxsim", batch=32, note="lower case; lengths 32 and 64")
    golden.multi(lambda texts, size: encode(texts, size, XTR_QUERY), lambda texts, size: encode(texts, size, LENGTH))
    golden.write()


def make_constbert(name: str, *, flattened: bool, bias: bool) -> None:
    folder = save_backbone("bert", checkpoint_folder(name), all_texts())
    n_in, n_out = (CONST_DOCUMENT, CONST_ROWS)
    if flattened:
        n_in, n_out = n_in * DIM, n_out * DIM
    linear, project = torch.nn.Linear(HIDDEN, DIM, bias=False), torch.nn.Linear(n_in, n_out, bias=bias)
    randomise(linear, seed=100)
    randomise(project, seed=101)
    tensors = {f"bert.{key}": value for key, value in load_file(folder / "model.safetensors").items()}
    tensors |= {"linear.weight": linear.weight.detach(), "doc_project.weight": project.weight.detach()}
    if bias:
        tensors["doc_project.bias"] = project.bias.detach()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["ConstBERT"], "query_maxlen": CONST_QUERY, "doc_maxlen": CONST_DOCUMENT}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer, bert = AutoTokenizer.from_pretrained(folder), AutoModel.from_config(AutoConfig.from_pretrained(folder))
    bert.load_state_dict({key[5:]: value for key, value in tensors.items() if key.startswith("bert.")})
    bert.eval()

    @torch.no_grad()
    def states(texts: Sequence[str], length: int, marker: str) -> tuple[Any, Any]:
        inputs = tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=length - 1, return_tensors="pt"
        )
        ids, mask = inputs.input_ids, inputs.attention_mask
        marks = torch.full((len(ids), 1), tokenizer.convert_tokens_to_ids(marker))
        ids = torch.cat([ids[:, :1], marks, ids[:, 1:]], dim=1)
        mask = torch.cat([mask[:, :1], torch.ones_like(marks), mask[:, 1:]], dim=1)
        if marker == "[unused0]":
            ids = torch.where(ids == tokenizer.pad_token_id, tokenizer.mask_token_id, ids)
        return linear(bert(ids, attention_mask=mask).last_hidden_state), ids

    @torch.no_grad()
    def queries(texts: Sequence[str], size: int) -> list[Any]:
        answers = [states(batch, CONST_QUERY, "[unused0]")[0] for batch in batches(texts, size)]
        return list(F.normalize(torch.cat(answers), dim=-1).numpy())

    @torch.no_grad()
    def documents(texts: Sequence[str], size: int) -> list[Any]:
        items = []
        for batch in batches(texts, size):
            rows, ids = states(batch, CONST_DOCUMENT, "[unused1]")
            rows = rows * (ids != tokenizer.pad_token_id).unsqueeze(-1)
            mixed = (
                project(rows.flatten(1)).view(len(rows), CONST_ROWS, DIM)
                if flattened
                else (project(rows.transpose(1, 2)).transpose(1, 2))
            )
            items += list(F.normalize(mixed, dim=-1).numpy())
        return items

    note = "markers and expansion as ColBERT; rows of padding are zero; the published code could not be compared"
    golden = Golden(name, "constbert", "transformers", "maxsim", batch=32, note=note)
    golden.multi(queries, documents)
    golden.write()


CASES: dict[str, Callable[[str], None]] = {
    "xtr": make_xtr,
    "constbert": lambda name: make_constbert(name, flattened=False, bias=True),
    "constbert-flattened": lambda name: make_constbert(name, flattened=True, bias=False),
}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        CASES[chosen](chosen)
