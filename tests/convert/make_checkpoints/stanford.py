"""Checkpoints of Stanford's ColBERT: with and without attention to the [MASK] tokens, and without artifact.metadata.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.stanford

with colbert-ai 0.2.22, transformers 4.57.6 and torch 2.13.0.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from colbert.infra import ColBERTConfig
from colbert.modeling.checkpoint import Checkpoint
from colbert.modeling.colbert import ColBERT
from transformers import BertConfig, BertModel, BertTokenizerFast

from convert.make_checkpoints.backbones import DIM, randomise, shared_sizes
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder
from convert.make_checkpoints.tokenizers_of_texts import bert_words

ColBERT.loaded_extensions = True  # its compiled search is not needed to encode


@dataclass(frozen=True, slots=True)
class Case:
    settings: dict[str, Any] = field(default_factory=dict)
    has_metadata: bool = True
    n_positions: int = 64


TINY = {"dim": DIM, "query_maxlen": 24, "doc_maxlen": 40}
CASES = {
    "stanford": Case(TINY),
    "stanford-attended": Case({**TINY, "attend_to_mask_tokens": True}),
    # Everything is the default: 128 dimensions, 32 and 220 tokens.
    "stanford-without-metadata": Case(has_metadata=False, n_positions=224),
}


def save_bert(folder: Path, n_positions: int) -> None:
    tokenizer = BertTokenizerFast(tokenizer_object=bert_words(all_texts(), 260), model_max_length=n_positions)
    model = BertModel(BertConfig(**shared_sizes(tokenizer, max_position_embeddings=n_positions)))
    randomise(model, seed=7)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def use_pickle(folder: Path, model: torch.nn.Module) -> None:
    """Older checkpoints have their weights in pytorch_model.bin."""
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def forget_machine(metadata: Path) -> None:
    """The library records the machine, its folders and the command; the keys stay, with neutral values."""
    content = json.loads(metadata.read_text())
    content.update(root="/experiments", name="none", checkpoint="bert-base-uncased", gpus=0)
    content["meta"] = {"version": content["meta"]["version"]}
    metadata.write_text(json.dumps(content, indent=4) + "\n")


def make(name: str, case: Case) -> None:
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        save_bert(Path(scratch), case.n_positions)
        made = Checkpoint(scratch, ColBERTConfig(checkpoint=scratch, **case.settings), verbose=0)
        randomise(made.linear, seed=100)
        made.save(str(folder))
    if case.has_metadata:
        forget_machine(folder / "artifact.metadata")
    else:
        (folder / "artifact.metadata").unlink()
        use_pickle(folder, made.model)
    # Without the file the library takes its defaults, but asks for the name.
    model = Checkpoint(str(folder), ColBERTConfig(checkpoint=str(folder)), verbose=0)
    golden = Golden(name, "stanford-colbert", "colbert-ai", "maxsim", batch=32)

    def queries(texts: Sequence[str], size: int) -> list[Any]:
        return list(model.queryFromText(list(texts), bsize=size).numpy())

    def documents(texts: Sequence[str], size: int) -> list[Any]:
        # The library pads all texts of a call alike, so single texts need a call each.
        calls = [[text] for text in texts] if size == 1 else [list(texts)]
        answers = [model.docFromText(call, bsize=size, keep_dims=False)[0] for call in calls]
        return [rows.numpy() for answer in answers for rows in answer]

    every = (3, 5) if case.has_metadata else (10, 71)
    golden.multi(queries, documents, every=every)
    golden.write()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        make(chosen, CASES[chosen])
