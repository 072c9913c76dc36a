"""`plait convert` and `plait models`: what they print, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plait.cli.app import app
from plait.encode.hub_models import model_folder
from plait.encode.load import load_model

CHECKPOINTS = Path(__file__).parents[1] / "convert" / "checkpoints"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_convert_prints_the_layout_the_settings_and_the_comparison(runner: CliRunner, tmp_path: Path) -> None:
    source = str(CHECKPOINTS / "stanford")
    answer = runner.invoke(app, ["convert", source, "--to", str(tmp_path / "model"), "--precision", "both"])
    assert answer.exit_code == 0, answer.stderr
    assert "layout stanford-colbert, by config.json: architectures" in answer.stderr
    assert "query length: 24 (artifact.metadata: query_maxlen)" in answer.stderr
    assert "fp32 multi: at most" in answer.stdout
    assert "off the source model, mean cosine 1.00000" in answer.stdout
    assert load_model(tmp_path / "model").spec.multi is not None


def test_options_reach_the_model(runner: CliRunner, tmp_path: Path) -> None:
    options = ["--query-prompt", "q: ", "--dims", "8", "--length", "40", "--pooling", "cls", "--name", "mine"]
    to = str(tmp_path / "model")
    answer = runner.invoke(app, ["convert", str(CHECKPOINTS / "st-bert-mean"), "--to", to, *options, "--verify"])
    assert answer.exit_code == 0, answer.stderr
    assert "same best ten" in answer.stdout
    card = load_model(to).card
    assert (card.name, card.query.prefix, card.document.length, card.spec.dense) == ("mine", "q: ", 40, 8)


def test_the_price_of_rounding_is_measured_on_a_dataset(runner: CliRunner, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    texts = {"1": "The cell divides.", "2": "The river floods the land.", "3": "Bread is baked."}
    lines = [json.dumps({"_id": id, "title": "", "text": text}) for id, text in texts.items()]
    (data / "corpus.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (data / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "Bread is baked."}) + "\n", encoding="utf-8")
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t3\t1\n", encoding="utf-8")
    source, to = str(CHECKPOINTS / "st-bert-mean"), str(tmp_path / "model")
    answer = runner.invoke(app, ["convert", source, "--to", to, "--precision", "both", "--data", str(data)])
    assert answer.exit_code == 0, answer.stderr
    assert "nDCG@10 on data, int8: dense 1.0000\n  nDCG@10 on data, fp32: dense 1.0000\n" in answer.stdout
    wrong = runner.invoke(app, ["convert", source, "--to", str(tmp_path / "other"), "--data", str(tmp_path / "none")])
    assert wrong.exit_code == 2
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing/here/at-all"], "does not exist; name the folder of a checkpoint"),
        ([str(CHECKPOINTS / "stanford"), "--as", "colbert"], "there is no layout 'colbert'"),
        ([str(CHECKPOINTS / "stanford"), "--as", "bge-m3"], "by config.json: architectures it is stanford-colbert"),
        ([str(CHECKPOINTS / "stanford"), "--precision", "int4"], "there is no precision 'int4'"),
        ([str(CHECKPOINTS / "st-bert-mean"), "--pooling", "median"], "pooling is 'median'"),
    ],
)
def test_wrong_use_is_explained(runner: CliRunner, tmp_path: Path, arguments: list[str], message: str) -> None:
    answer = runner.invoke(app, ["convert", *arguments, "--to", str(tmp_path / "model")])
    assert answer.exit_code == 2
    assert message in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_says_that_nothing_was_written(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("plait.convert.convert.convert", interrupt)
    answer = runner.invoke(app, ["convert", str(CHECKPOINTS / "stanford"), "--to", str(tmp_path / "model")])
    assert answer.exit_code == 130
    assert "was not written" in answer.stderr


def test_missing_packages_are_named(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.convert.packages.find_spec", lambda name: None if name == "onnx" else object())
    answer = runner.invoke(app, ["convert", "somewhere", "--to", "model"])
    assert answer.exit_code == 2
    assert "pip install 'plait[convert]'" in answer.stderr


@pytest.fixture
def cached(runner: CliRunner, home: Path) -> Path:
    """A converted model in the cache."""
    folder = model_folder("org/tiny", COMMIT, "int8")
    assert folder.is_relative_to(home)
    answer = runner.invoke(app, ["convert", str(CHECKPOINTS / "st-bert-mean"), "--to", str(folder)])
    assert answer.exit_code == 0, answer.stderr
    return folder


@pytest.mark.usefixtures("cached")
def test_models_lists_bundled_and_cached_models(runner: CliRunner) -> None:
    answer = runner.invoke(app, ["models"])
    assert answer.exit_code == 0
    rows = {line.split()[0]: line for line in answer.stdout.splitlines()[2:]}
    assert "bundled" in rows["plait-small"]
    assert "dense 384, sparse 30522, multi 128" in rows["plait-small"]
    assert "cached" in rows["org/tiny"]
    assert "int8" in rows["org/tiny"]


def test_models_as_json(runner: CliRunner, cached: Path) -> None:
    listed = {model["name"]: model for model in json.loads(runner.invoke(app, ["models", "--json"]).stdout)}
    tiny = listed["org/tiny"]
    assert (tiny["source"], tiny["revision"], tiny["folder"]) == ("cached", COMMIT, str(cached))
    assert tiny["bytes"] == sum((cached / name).stat().st_size for name in ("model.int8.onnx", "tokenizer.json"))
    assert listed["plait-small"]["lengths"] == {"query": 512, "document": 512}
    assert listed["plait-small"]["licence"] == "MIT"


def test_paths_of_models(runner: CliRunner, cached: Path, home: Path) -> None:
    assert runner.invoke(app, ["models", "path"]).stdout.strip() == str(home / "models")
    assert runner.invoke(app, ["models", "path", "org/tiny"]).stdout.strip() == str(cached)
    assert runner.invoke(app, ["models", "path", "plait-small"]).stdout.strip().endswith("models/plait-small")
    answer = runner.invoke(app, ["models", "path", "org/other"])
    assert answer.exit_code == 2
    assert "there is no model 'org/other' here" in answer.stderr


def test_removing_a_model(runner: CliRunner, cached: Path) -> None:
    answer = runner.invoke(app, ["models", "remove", "org/tiny"])
    assert answer.exit_code == 0, answer.stderr
    assert "removed org/tiny" in answer.stdout
    assert not cached.exists()
    assert runner.invoke(app, ["models", "remove", "org/tiny"]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["remove", "plait-small"], "plait-small comes with plait"),
        (["remove"], "name the model to remove"),
        (["remove", "nothing"], "is not the name of a converted model"),
        (["list", "plait-small"], "did you mean: plait models path plait-small"),
    ],
)
@pytest.mark.usefixtures("home")
def test_wrong_use_of_models(runner: CliRunner, arguments: list[str], message: str) -> None:
    answer = runner.invoke(app, ["models", *arguments])
    assert answer.exit_code == 2
    assert message in answer.stderr


@pytest.mark.usefixtures("home")
def test_a_damaged_model_is_left_out_of_the_list(runner: CliRunner, cached: Path) -> None:
    (cached / "plait.json").write_text("{")
    assert "org/tiny" not in runner.invoke(app, ["models"]).stdout
