"""A tiny BERT for cheap score matrices: random layers under the word vectors of a larger one, cut to fewer directions.

    python benchmarks/tiny_backbone.py path/to/encoder --to tiny-backbone --hidden 64 --layers 2

The encoder is a folder of transformers. Its word vectors are what makes so small a model tell words apart that it was
never trained on; all else begins at random.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from transformers import AutoModel, BertConfig, BertModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    table = AutoModel.from_pretrained(str(given.encoder)).get_input_embeddings().weight.detach().double()
    centred = table - table.mean(dim=0)
    _, directions = torch.linalg.eigh(centred.T @ centred)
    kept = centred @ directions[:, -given.hidden :]
    small = BertModel(
        BertConfig(
            vocab_size=len(table),
            hidden_size=given.hidden,
            num_hidden_layers=given.layers,
            num_attention_heads=4,
            intermediate_size=2 * given.hidden,
            max_position_embeddings=128,
        ),
        add_pooling_layer=False,
    )
    with torch.no_grad():
        # At the size of the positions beside them, so that neither drowns the other.
        small.embeddings.word_embeddings.weight.copy_((kept / kept.std() * 0.05).float())
    small.save_pretrained(str(given.to))
    shutil.copy(given.encoder / "tokenizer.json", given.to / "tokenizer.json")


if __name__ == "__main__":
    main()
