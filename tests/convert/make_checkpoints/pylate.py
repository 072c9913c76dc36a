"""Models of PyLate: one and three Dense modules, with and without query expansion, prefix and residual.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m convert.make_checkpoints.pylate

with pylate 1.6.0, sentence-transformers 5.3.0, transformers 5.3.0 and torch 2.13.0.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pylate import models
from sentence_transformers.models import Transformer

from convert.make_checkpoints.backbones import DIM, HIDDEN, randomise, save_backbone
from convert.make_checkpoints.golden import Golden, all_texts, checkpoint_folder


@dataclass(frozen=True, slots=True)
class Case:
    backbone: str = "bert"
    dims: tuple[int, ...] = (DIM,)
    residual: tuple[bool, ...] = (False,)
    activation: type[torch.nn.Module] = torch.nn.Identity
    bias: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


LENGTHS = {"query_length": 24, "document_length": 40}
CASES = {
    "pylate-bert": Case(settings=LENGTHS),
    "pylate-bert-attended": Case(bias=True, settings={**LENGTHS, "attend_to_expansion_tokens": True}),
    # As LateOn and GTE-ModernColBERT: wide, back, then narrow.
    "pylate-modernbert-residual": Case(
        "modernbert",
        dims=(48, HIDDEN, DIM),
        residual=(True, True, False),
        settings={**LENGTHS, "do_query_expansion": False},
    ),
    "pylate-without-prefix": Case(
        dims=(HIDDEN, DIM),
        residual=(True, False),
        activation=torch.nn.GELU,
        settings={**LENGTHS, "query_prefix": "", "document_prefix": "", "skiplist_words": [".", ",", "~"]},
    ),
    "pylate-xlm-roberta": Case("xlm-roberta", settings=LENGTHS),
}


def build(case: Case, backbone: Path) -> models.ColBERT:
    widths = [HIDDEN, *case.dims]
    dense = [
        models.Dense(n_in, n_out, bias=case.bias, activation_function=case.activation(), use_residual=residual)
        for n_in, n_out, residual in zip(widths[:-1], widths[1:], case.residual, strict=True)
    ]
    for number, module in enumerate(dense):
        randomise(module, seed=100 + number)
    model = models.ColBERT(modules=[Transformer(str(backbone)), *dense], device="cpu", **case.settings)
    randomise(model[0].auto_model, seed=7)  # again, because the vocabulary has new tokens
    return model


def make(name: str, case: Case) -> None:
    folder = checkpoint_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        build(case, save_backbone(case.backbone, Path(scratch), all_texts())).save(str(folder))
    model = models.ColBERT(str(folder), device="cpu")
    golden = Golden(name, "pylate", "pylate", "maxsim", batch=32)

    def encode(texts: Any, size: int, *, is_query: bool) -> Any:
        return model.encode(list(texts), batch_size=size, is_query=is_query, show_progress_bar=False)

    golden.multi(
        lambda texts, size: encode(texts, size, is_query=True), lambda texts, size: encode(texts, size, is_query=False)
    )
    golden.write()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        make(chosen, CASES[chosen])
