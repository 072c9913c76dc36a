"""Export of a run: the model folder gives the embeddings of torch, and wrong options are errors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import plait
from plait.cli.app import app
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.load import load_model, verify_model
from plait.encode.model_card import CARD_NAME
from plait.encode.onnx import OnnxEncoder
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, InputError, ModelError
from plait.evaluate import rank_queries
from plait.records import Document
from plait.train.build import build
from plait.train.export.export import ExportConfig, Exported, export_run, torch_encoder
from plait.train.export.parity import Difference, Parity, check_fp32, check_int8, compare
from plait.train.export.trained import backbone_arrays, read_trained
from plait.train.model import Model
from plait.train.recipe import read_recipe
from plait.train.run import Run
from plait.train.tokenization import TextTokenizer
from train.corpora import write_beir

RECIPES = Path(__file__).parent.parent.parent.parent / "recipes"
TEXTS = [
    "The loom is made of oak.",
    "a",
    "",
    "..., !",
    "Weaving weaves the woven; weaving is weaving.",
    "word " * 90,
]
PLAIN = ["mining.corpus=", "batching.n_negatives=0", "evaluation.data=", "optimiser.steps=2", "run.cpu=true"]
FIXED = ["model.multi={dim = 16, fixed = {n_vectors = 4}}", "loss={name = 'contrastive', kind = 'multi'}"]
MARKED = [
    "model.query={length = 16, prefix = '[unused0] ', expansion = {token = '[MASK]', length = 12, attended = false}}",
    "model.document={length = 40, prefix = '[unused1] ', overlap = 8}",
    "model.multi={dim = 16, first_row = false, bias = true, skip = ['.', ',']}",
    "model.dense={pooling = 'cls'}",
]
ADAPTER = ["model.token_adapter={n_layers = 2, dim = 8}"]
IDF = ["model.sparse={hidden = 3, idf = true}", f"model.idf_corpora=['{RECIPES / 'tiny-data'}']"]
STEMMED = ["model.sparse={stemming = 'en', idf = true}", IDF[1]]
WEIGHTED = ["model.sparse={length_norm = 0.2, query_tf = 0.5}"]
Train = Callable[..., Path]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Two steps of the tiny recipe with changes; the folder of the run."""

    def trained(*changes: str) -> Path:
        folder = tmp_path_factory.mktemp("trained") / "run"
        data = [f"data.0.path={RECIPES / 'tiny-data'}", "data.0.licence=CC0-1.0"]
        Run(read_recipe(RECIPES / "tiny.toml", [*data, *PLAIN, *changes]), folder, build).train()
        return folder

    return trained


@pytest.fixture(scope="module")
def run(train: Train) -> Path:
    return train()


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    config = ExportConfig(precision="both", name="woven", licence="MIT", languages=("en",), n_threads=1)
    return export_run(run, tmp_path_factory.mktemp("models") / "woven", config)


def embeddings(given: Embeddings) -> tuple[np.ndarray, SparseVectors, MultiVectors]:
    assert given.dense is not None
    assert given.sparse is not None
    assert given.multi is not None
    return given.dense, given.sparse, given.multi


def assert_equal(one: Embeddings, other: Embeddings) -> None:
    assert len(one) == len(other)
    np.testing.assert_allclose(embeddings(one)[0], embeddings(other)[0], atol=1e-5)
    for field in ("terms", "offsets"):
        np.testing.assert_array_equal(getattr(embeddings(one)[1], field), getattr(embeddings(other)[1], field))
    np.testing.assert_allclose(embeddings(one)[1].weights, embeddings(other)[1].weights, atol=1e-5)
    np.testing.assert_array_equal(embeddings(one)[2].offsets, embeddings(other)[2].offsets)
    np.testing.assert_allclose(embeddings(one)[2].values, embeddings(other)[2].values, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [(), FIXED, MARKED, IDF, ADAPTER, STEMMED, WEIGHTED],
    ids=["plain", "fixed", "marked", "idf", "token adapter", "stemmed", "weighted"],
)
def test_the_exported_model_gives_the_embeddings_of_torch(train: Train, tmp_path: Path, changes: list[str]) -> None:
    folder = train(*changes)
    export_run(folder, tmp_path / "model", ExportConfig(precision="fp32", n_threads=1))
    encoder, twin = load_model(tmp_path / "model", n_threads=1), torch_encoder(read_trained(folder))
    assert_equal(encoder.encode_documents(TEXTS), twin.encode_documents(TEXTS))
    assert_equal(encoder.encode_queries(TEXTS), twin.encode_queries(TEXTS))
    assert encoder.encode_documents(TEXTS).truncated == 1
    n_rows = np.diff(embeddings(encoder.encode_documents(TEXTS))[2].offsets)
    assert (set(n_rows.tolist()) == {4}) == (changes is FIXED)


def test_sparse_terms_equal_torchs_token_weights(exported: Exported, run: Path) -> None:
    model = read_trained(run).model
    texts = TextTokenizer(read_trained(run).tokenizer, model.config)
    sparse = embeddings(load_model(exported.folder, precision="fp32", n_threads=1).encode_documents(TEXTS))[1]
    for item, text in enumerate(TEXTS):
        tokens = texts.tokens([text], is_query=False)
        weights = model(tokens, is_query=False).sparse[0].tolist()
        best: dict[int, float] = {}
        for term, weight in zip(tokens.ids[0].tolist(), weights, strict=True):
            if weight > 0:
                best[term] = max(weight, best.get(term, 0.0))
        span = slice(sparse.offsets[item], sparse.offsets[item + 1])
        assert sparse.terms[span].tolist() == sorted(best)
        assert sparse.weights[span].tolist() == pytest.approx([best[term] for term in sorted(best)], abs=1e-5)


def test_words_of_one_stem_are_one_term(train: Train, tmp_path: Path) -> None:
    export_run(train(*STEMMED), tmp_path / "model", ExportConfig(n_threads=1))
    encoder = load_model(tmp_path / "model", n_threads=1)
    rows = embeddings(encoder.encode_documents(["many cells", "a cell", "the cell of cells", "one wall"]))[1]
    term_sets = [set(rows.terms[rows.offsets[item] : rows.offsets[item + 1]].tolist()) for item in range(4)]
    named = [{encoder.term(number) for number in terms} for terms in term_sets]
    assert all("cells" not in terms for terms in named)
    assert {item for item, terms in enumerate(named) if "cell" in terms} == {0, 1, 2}


def test_excluded_sparse_vectors_join_hybrid_search_only_with_a_weight(train: Train, tmp_path: Path) -> None:
    folder = train(*STEMMED)
    included = export_run(folder, tmp_path / "included", ExportConfig(n_threads=1))
    excluded = export_run(folder, tmp_path / "excluded", ExportConfig(n_threads=1, exclude_sparse_from_hybrid=True))
    assert included.card.fingerprint == excluded.card.fingerprint
    for model, is_used in ((included, True), (excluded, False)):
        with plait.open(tmp_path / f"index of {model.folder.name}", create=True, model=model.folder) as index:
            index.add([{"id": "1", "text": "The loom is made of oak."}, {"id": "2", "text": "Cells have walls."}])
            assert ("sparse" in index.search("oak looms")[0].scores) == is_used
            assert "sparse" in index.search("oak looms", params=plait.HybridParams(sparse=0.5))[0].scores
            assert index.search("oak looms", mode="sparse")
        shown = CliRunner().invoke(app, ["info", str(tmp_path / f"index of {model.folder.name}")]).stdout
        assert ("excluded from hybrid search" in shown) != is_used


def test_a_card_with_forms_needs_a_graph_with_terms(exported: Exported, tmp_path: Path) -> None:
    shutil.copytree(exported.folder, tmp_path / "model")
    card = json.loads((tmp_path / "model" / CARD_NAME).read_text())
    card["embeddings"]["sparse"]["forms"] = True
    (tmp_path / "model" / CARD_NAME).write_text(json.dumps(card))
    with pytest.raises(ModelError, match="should have an output 'terms'"):
        load_model(tmp_path / "model", n_threads=1)


def test_an_exported_folder_loads_in_either_precision(exported: Exported) -> None:
    assert verify_model(exported.folder) == ["tokenizer.json", "model.int8.onnx", "model.onnx"]
    encoder = load_model(exported.folder, n_threads=1)
    assert encoder.name == "woven"
    assert encoder.spec == EmbeddingSpec(dense=64, sparse=30522, multi=32)
    assert encoder.card.licence == "MIT"
    assert encoder.term(2088) == "world"
    full = load_model(exported.folder, precision="fp32", n_threads=1)
    assert full.fingerprint == encoder.fingerprint == exported.card.fingerprint
    assert min(seen.cosine for seen in compare(full, encoder, TEXTS, TEXTS).embeddings.values()) > 0.99


def test_the_page_is_written_from_the_run(exported: Exported) -> None:
    page = (exported.folder / "README.md").read_text()
    for said in (
        "# woven", "30,522 terms", "| tiny-data | beir | train | CC0-1.0 |", "Loss: m3. Weights of step 2 of 2",
        "Last loss, at step 2", "torch", "int8 compared with fp32", "largest difference", "[optimiser]",
    ):  # fmt: skip
        assert said in page


def test_one_precision_writes_one_graph(train: Train, tmp_path: Path) -> None:
    folder = train("model.sparse={}", "model.dense={pooling = 'cls'}")
    export_run(folder, tmp_path / "small", ExportConfig(n_threads=1))
    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == [
        "README.md", "model.int8.onnx", "plait.json", "tokenizer.json"
    ]  # fmt: skip
    export_run(folder, tmp_path / "full", ExportConfig(precision="fp32", n_threads=1))
    assert isinstance(load_model(tmp_path / "full", n_threads=1), OnnxEncoder)
    with pytest.raises(ModelError, match="has no precision 'int8'; it has fp32"):
        load_model(tmp_path / "full", precision="int8")


def test_an_exported_model_indexes_and_searches(tmp_path: Path) -> None:
    raw = read_recipe(RECIPES / "tiny.toml").toml().replace("sparse = {}\n", "")
    (tmp_path / "recipe.toml").write_text(raw)
    data = [f"data.0.path={RECIPES / 'tiny-data'}", "loss={name = 'contrastive', kind = 'multi'}"]
    Run(read_recipe(tmp_path / "recipe.toml", [*data, *PLAIN]), tmp_path / "run", build).train()
    export_run(tmp_path / "run", tmp_path / "model", ExportConfig(precision="fp32", n_threads=1))
    with plait.open(tmp_path / "index", create=True, model=tmp_path / "model", n_threads=1) as index:
        index.add([Document("1", "the loom is made of oak"), Document("2", "glaciers grind their valleys")])
        for mode in ("dense", "multi", "hybrid"):
            assert rank_queries(index, ["the loom is made of oak"], 1, mode=mode)[0][0][0] == "1"


def test_mcls_pools_every_cls_token(train: Train, tmp_path: Path) -> None:
    run = train("model.dense={pooling = 'cls'}", "model.document={length = 40, prefix = '', overlap = 8}")
    folders = {mcls: tmp_path / f"model-{mcls}" for mcls in (None, 8)}
    for mcls, folder in folders.items():
        export_run(run, folder, ExportConfig(precision="fp32", mcls=mcls))
    plain, marked = (load_model(folder) for folder in folders.values())
    short, expected = (model.encode_documents(["The loom."]).dense for model in (marked, plain))
    assert short is not None
    assert expected is not None
    np.testing.assert_allclose(short, expected, atol=1e-6)
    text = "word loom " * 30
    ids = marked._tokenizer.tokenize([text], is_query=False).ids[0]
    first = ids == ids[0]
    assert 3 <= first.sum() <= 5
    assert len(ids) <= 40
    encoder = read_trained(run, "").model.backbone.encoder.eval()
    with torch.no_grad():
        states = encoder(torch.tensor(ids)[None]).last_hidden_state[0][torch.tensor(first)].mean(dim=0)
    given = marked.encode_documents([text])
    assert given.dense is not None
    assert given.multi is not None
    np.testing.assert_allclose(given.dense[0], (states / states.norm()).numpy(), atol=1e-4)
    assert len(given.multi[0]) == len(marked.tokens(text, is_query=False))
    assert marked.fingerprint != plain.fingerprint


def test_mcls_needs_cls_pooling(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mcls needs a model"):
        export_run(run, tmp_path / "model", ExportConfig(mcls=8))


def test_both_precisions_are_measured_on_a_dataset(run: Path, tmp_path: Path) -> None:
    data = write_beir(tmp_path / "set")
    config = ExportConfig(data=str(data), split="dev", n_threads=1)
    ranking = export_run(run, tmp_path / "model", config).checks.ranking
    assert ranking is not None
    assert (ranking.n_queries, list(ranking.values)) == (50, ["int8", "fp32"])
    for values in ranking.values.values():
        assert list(values) == ["dense", "sparse", "multi"]
        assert 0 < min(values.values()) <= max(values.values()) <= 1
    assert "nDCG@10 on set (dev, 50 queries)" in (tmp_path / "model" / "README.md").read_text()


def test_force_replaces_model_folders_only(run: Path, tmp_path: Path) -> None:
    model, other = tmp_path / "model", tmp_path / "other"
    export_run(run, model, ExportConfig(n_threads=1))
    with pytest.raises(ConfigError, match="exists; name another folder, or replace it with --force"):
        export_run(run, model)
    export_run(run, model, ExportConfig(name="second", force=True, n_threads=1))
    assert json.loads((model / "plait.json").read_text())["name"] == "second"
    other.mkdir()
    (other / "thesis.txt").write_text("do not lose me")
    with pytest.raises(ConfigError, match=r"has no plait.json; --force replaces only model folders"):
        export_run(run, other, ExportConfig(force=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "other"]


def test_a_graph_that_differs_from_torch_is_not_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(model: Model) -> object:
        weights, config = backbone_arrays(model)
        return {**weights, "embeddings.LayerNorm.weight": weights["embeddings.LayerNorm.weight"] * 1.1}, config

    monkeypatch.setattr("plait.train.export.export.backbone_arrays", wrong)
    with pytest.raises(ModelError, match=r"vectors of the graph differ from torch's by"):
        export_run(run, tmp_path / "model", ExportConfig(n_threads=1))
    assert list(tmp_path.iterdir()) == []


def test_nan_exceeds_every_limit() -> None:
    with pytest.raises(ModelError, match="the dense vectors of the graph differ from torch's by nan"):
        check_fp32(Parity({"dense": Difference(float("nan"), 1.0)}, 1))
    with pytest.raises(ModelError, match=r"the int8 multi vectors have a mean cosine of 0.500"):
        check_int8(Parity({"multi": Difference(0.0, 0.5)}, 1))


def test_a_run_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no folder"):
        export_run(tmp_path / "none", tmp_path / "model")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ModelError, match=r"has no trained model: no folder best or final, only check"):
        export_run(tmp_path / "run", tmp_path / "model")
    with pytest.raises(ConfigError, match="weights is 'last'; choose one of best, final"):
        export_run(tmp_path / "run", tmp_path / "model", ExportConfig(weights="last"))
    assert not (tmp_path / "model").exists()


def test_a_backbone_of_pre_training_is_refused(train: Train, tmp_path: Path) -> None:
    corpus = RECIPES / "tiny-data" / "corpus.jsonl"
    folder = train("loss={name = 'retromae'}", f"data.0.path={corpus}", "data.0.kind=texts")
    with pytest.raises(ModelError, match="a backbone without heads, from RetroMAE"):
        export_run(folder, tmp_path / "model")


def test_texts_longer_than_the_backbones_positions_are_refused(train: Train, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the encoder has 64 positions, and a text has 100"):
        export_run(train("model.document={length = 100, overlap = 8}"), tmp_path / "model")


def test_invalid_options_are_refused_before_the_export(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="precision is 'int4'; choose one of int8, fp32, both"):
        ExportConfig(precision="int4")
    with pytest.raises(InputError, match="there is no folder"):
        export_run(run, tmp_path / "model", ExportConfig(data=str(tmp_path / "none")))


def test_a_saved_model_is_exported_without_its_run(run: Path, tmp_path: Path) -> None:
    exported = export_run(run / "final", tmp_path / "model", ExportConfig(n_threads=1))
    assert exported.card.name == "tiny"
    assert "There are no records of the run" in (tmp_path / "model" / "README.md").read_text()
