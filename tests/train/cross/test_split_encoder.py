"""Cross-encoders with split layers: the lower layers encode the two texts separately, the upper ones together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from plait.encode.load import find_model
from plait.errors import ConfigError
from plait.rerank.cross_encoder import load_cross
from plait.rerank.pairs import PairTokenizer
from plait.train.backbone import Backbone, make_backbone
from plait.train.cross.config import CrossConfig
from plait.train.cross.export import PROBES, export_cross
from plait.train.cross.model import CrossModel, PairTokens, weighted_maxsim
from plait.train.cross.model import save_cross as save
from plait.train.cross.scorers import RowScorer, TorchPairScorer, pad_pairs
from plait.train.cross.split_encoder import SplitEncoder
from plait.train.model import AdapterLayer, gather_rows
from plait.train.tensors import Tokens
from plait.train.tokenization import load_tokenizer, with_markers
from train.tiny import tiny_backbone, tiny_config

TOKENS = PairTokens(
    ids=torch.tensor([[2, 7, 8, 3, 2, 9, 5, 6, 3], [2, 7, 3, 2, 4, 3, 0, 0, 0]]),
    mask=torch.tensor([[1] * 9, [1] * 6 + [0] * 3]),
    type_ids=torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0, 0]]),
)


def config(**changes: object) -> CrossConfig:
    fields = {"backbone": "tiny", "head": "maxsim", "split_layers": 2, "scale": 10.0, "document_prefix": "[CLS]"}
    return CrossConfig(**{**fields, **changes})  # type: ignore[arg-type]


def wide_backbone(n_ids: int) -> Backbone:
    settings = tiny_config("bert", 2)
    settings.vocab_size, settings.max_position_embeddings = n_ids, 96
    torch.manual_seed(0)
    return make_backbone(settings)


def test_split_layers_give_the_states_of_single_texts() -> None:
    backbone = tiny_backbone("bert", 2).eval()
    result = SplitEncoder(backbone, 2).states(TOKENS.ids, TOKENS.mask, TOKENS.type_ids)
    for pair, text in [(0, slice(0, 4)), (0, slice(4, 9)), (1, slice(0, 3)), (1, slice(3, 6))]:
        alone = backbone.encoder(input_ids=TOKENS.ids[pair : pair + 1, text]).last_hidden_state[0]
        torch.testing.assert_close(result[pair, text], alone, atol=1e-5, rtol=1e-4)


def test_cached_states_equal_a_fresh_pass_and_are_computed_once() -> None:
    split = SplitEncoder(tiny_backbone("bert", 2).train(), 2)
    fresh = split.states(TOKENS.ids, TOKENS.mask, TOKENS.type_ids)
    for _ in range(2):
        cached = split.cached_states(TOKENS.ids, TOKENS.mask, TOKENS.type_ids)
        attended = TOKENS.mask.bool()
        torch.testing.assert_close(cached[attended], fresh[attended], atol=5e-3, rtol=5e-3)
    assert len(split._cache) == 4


def test_the_cache_stays_within_its_bytes() -> None:
    backbone = tiny_backbone("bert", 2)
    split = SplitEncoder(backbone, 2, cache_bytes=6 * backbone.hidden * 2)
    split.cached_states(TOKENS.ids, TOKENS.mask, TOKENS.type_ids)
    assert split._n_bytes <= 6 * backbone.hidden * 2


def test_only_layers_above_the_split_learn() -> None:
    model = CrossModel(config(joint_dim=8), tiny_backbone("bert", 2), None)
    learning = {name.split(".")[0] for name, value in model.named_parameters() if value.requires_grad}
    assert learning == {"joint", "weigh"}
    model.train()(TOKENS).sum().backward()
    assert model.joint is not None
    assert model.joint.up.weight.grad is not None


def test_a_joint_layer_adds_nothing_at_first() -> None:
    backbone = tiny_backbone("bert", 2)
    with_layer, without = (CrossModel(config(joint_dim=joint), backbone, None).eval() for joint in (8, 0))
    torch.testing.assert_close(with_layer(TOKENS), without(TOKENS))


def test_the_score_is_the_mean_of_the_best_similarities() -> None:
    states = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    tokens = PairTokens(torch.zeros(1, 4), torch.tensor([[1, 1, 1, 0]]), torch.tensor([[0, 0, 1, 0]]))
    unit = states[0] / states[0].norm(dim=1, keepdim=True)
    expected = (unit[0] @ unit[2] + unit[1] @ unit[2]) / 2
    torch.testing.assert_close(weighted_maxsim(states, torch.zeros(1, 4), tokens)[0], expected)


def test_a_split_model_is_exported_and_scores_the_same(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(find_model())
    backbone = wide_backbone(tokenizer.get_vocab_size())
    model = CrossModel(config(joint_dim=8, length=80, query_length=24), backbone, None).eval()
    torch.nn.init.normal_(model.joint.up.weight)  # type: ignore[union-attr]
    save(model, tokenizer, tmp_path / "run")
    assert export_cross(tmp_path / "run", tmp_path / "out").differences["fp32"] < 1e-3
    wanted = TorchPairScorer(model, PairTokenizer(tokenizer, model.config.pair_input)).score(PROBES)
    np.testing.assert_allclose(
        load_cross(tmp_path / "out", precision="fp32").score(PROBES), wanted, rtol=1e-4, atol=1e-4
    )


def test_scores_in_training_equal_scores_in_evaluation() -> None:
    tokenizer = load_tokenizer(find_model())
    backbone = wide_backbone(tokenizer.get_vocab_size())
    model = CrossModel(config(length=80, query_length=24), backbone, None)
    pairs = pad_pairs(PairTokenizer(tokenizer, model.config.pair_input).tokenize(PROBES), range(len(PROBES)))
    torch.testing.assert_close(model.train()(pairs), model.eval()(pairs), atol=2e-2, rtol=1e-2)


def test_a_lower_cross_attention_bias_separates_the_texts_more() -> None:
    backbone = tiny_backbone("bert", 2).eval()

    def states(split_layers: int, bias: float) -> torch.Tensor:
        model = CrossModel(config(split_layers=split_layers, cross_attention_bias=bias), backbone, None).eval()
        return model._states(TOKENS)[TOKENS.mask.bool()]

    alone = states(2, 0.0)
    gaps = [float((states(1, bias) - alone).abs().max()) for bias in (0.0, -2.0, -6.0, -60.0)]
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3]
    assert gaps[3] < 1e-5


def test_a_cross_attention_bias_is_exported(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(find_model())
    changes = {"split_layers": 1, "cross_attention_bias": -3.0, "length": 80, "query_length": 24}
    save(
        CrossModel(config(**changes), wide_backbone(tokenizer.get_vocab_size()), None).eval(), tokenizer, tmp_path / "r"
    )
    assert export_cross(tmp_path / "r", tmp_path / "out").differences["fp32"] < 1e-3


def test_a_cross_attention_bias_without_joint_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cross_attention_bias is -3\.0, and split_layers is 0"):
        config(split_layers=0, cross_attention_bias=-3.0)
    with pytest.raises(ConfigError, match="all 2 layers are split"):
        CrossModel(config(split_layers=2, cross_attention_bias=-3.0), tiny_backbone("bert", 2), None)


def test_only_a_bert_is_split_and_not_beyond_its_layers() -> None:
    with pytest.raises(ConfigError, match="only a bert can be split"):
        SplitEncoder(tiny_backbone("mpnet", 2), 1)
    with pytest.raises(ConfigError, match="the backbone has 2 layers"):
        SplitEncoder(tiny_backbone("bert", 2), 3)
    with pytest.raises(ConfigError, match="multiple of 4"):
        config(joint_dim=6)


@pytest.mark.parametrize("head", ["cls", "emb", "maxsim"])
def test_row_scores_equal_pair_scores(head: str) -> None:
    tokenizer = with_markers(load_tokenizer(find_model()), ("[unused0]", "[unused1]"))
    changes = {"head": head, "joint_dim": 8, "joint_layers": 2, "length": 60, "query_length": 8, "document_length": 16}
    reader = PairTokenizer(tokenizer, config(**changes).pair_input)
    torch.manual_seed(0)
    model = CrossModel(config(**changes), wide_backbone(tokenizer.get_vocab_size()), reader.marker_ids).eval()
    torch.nn.init.normal_(model.joint.up.weight)  # type: ignore[union-attr]
    documents = [document for _, document in PROBES]
    scorer = RowScorer(model, reader, documents)
    for query in ("who", "a query that is longer than the eight tokens which it may have"):
        wanted = TorchPairScorer(model, reader).score([(query, document) for document in documents])
        np.testing.assert_allclose(scorer.score(query), wanted, rtol=1e-4, atol=1e-4)


def test_row_scoring_needs_a_document_length() -> None:
    model = CrossModel(config(head="cls", joint_dim=8), tiny_backbone("bert", 2), None)
    with pytest.raises(ConfigError, match="RowScorer needs a model with joint_dim"):
        RowScorer(model, PairTokenizer(load_tokenizer(find_model()), model.config.pair_input), [])


def test_a_layer_at_some_positions_equals_the_full_layer_there() -> None:
    torch.manual_seed(0)
    layer, rows, mask = AdapterLayer(8), torch.randn(2, 5, 8), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    at = torch.tensor([[0, 3], [2, 1]])
    torch.testing.assert_close(layer(rows, mask, at), gather_rows(layer(rows, mask), at))


def test_a_graph_gives_the_states_if_all_layers_are_split() -> None:
    backbone = tiny_backbone("bert", 2)

    class Ones:
        def states(self, tokens: Tokens) -> torch.Tensor:
            return torch.ones(*tokens.ids.shape, backbone.hidden)

    cached = SplitEncoder(backbone, 2, graph=Ones()).cached_states(TOKENS.ids, TOKENS.mask, TOKENS.type_ids)
    assert (cached[TOKENS.mask.bool()] == 1).all()
    with pytest.raises(ConfigError, match="a graph gives last hidden states"):
        SplitEncoder(backbone, 1, graph=Ones())
