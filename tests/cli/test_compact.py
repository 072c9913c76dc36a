"""`plait compact`, on a real index: what it prints is what it did."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import plait
from plait.cli.app import app
from storage.grouped_tokens import SPEC, batch


@pytest.fixture
def index(tmp_path: Path) -> Path:
    with plait.open(tmp_path / "ix", create=True, spec=SPEC) as opened:
        for first in (0, 60):
            documents, spans, embeddings = batch(first, 60)
            opened.add_embeddings(documents, embeddings, spans=spans)
    return tmp_path / "ix"


def compact_lines(runner: CliRunner, *arguments: object) -> dict[str, str]:
    result = runner.invoke(app, ["compact", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return dict(line.split(maxsplit=1) for line in result.stdout.splitlines())


def test_compact_reports_counts_sizes_and_recall(runner: CliRunner, index: Path) -> None:
    lines = compact_lines(runner, index, "--bits", 4, "--threads", 2)
    assert (lines["documents"], lines["segments"]) == ("120", "2 -> 1")
    assert lines["multi"].startswith("960 vectors, 4 bits a dimension in 64 cells: ")
    assert set(lines) == {"documents", "segments", "size", "multi", "recall", "time"}


def test_a_second_run_has_nothing_to_do(runner: CliRunner, index: Path) -> None:
    compact_lines(runner, index, "--keep-8bit")
    result = runner.invoke(app, ["compact", str(index)])
    assert (result.exit_code, "compact already" in result.stderr) == (0, True)


def test_later_documents_show_their_drift(runner: CliRunner, index: Path) -> None:
    compact_lines(runner, index)
    documents, spans, embeddings = batch(200, 10)
    with plait.open(index) as opened:
        opened.add_embeddings(documents, embeddings, spans=spans)
    assert "times what the first ones did" in compact_lines(runner, index)["drift"]


@pytest.mark.parametrize("bits", ["3", "0", "two"])
def test_unsupported_bits_are_wrong_use(runner: CliRunner, index: Path, bits: str) -> None:
    assert runner.invoke(app, ["compact", str(index), "--bits", bits]).exit_code == 2


def test_a_small_index_is_only_merged_and_the_note_says_why(runner: CliRunner, tmp_path: Path) -> None:
    with plait.open(tmp_path / "ix", create=True, spec=SPEC) as opened:
        documents, spans, embeddings = batch(0, 3)
        opened.add_embeddings(documents, embeddings, spans=spans)
    result = runner.invoke(app, ["compact", str(tmp_path / "ix")])
    assert (result.exit_code, "24 vectors are too few" in result.stderr) == (0, True)


def test_compact_pools_an_index_and_info_shows_it(runner: CliRunner, index: Path) -> None:
    lines = compact_lines(runner, index, "--pool-fixed", 3, "--pool-method", "sequential")
    assert lines["pooling"] == "3 rows a passage, sequential"
    assert lines["multi"].startswith("720 vectors, 2 bits")
    shown = dict(line.split(maxsplit=1) for line in runner.invoke(app, ["info", str(index)]).stdout.splitlines())
    assert (shown["pooling"], shown["format"]) == ("3 rows a passage, sequential", "1")
    assert runner.invoke(app, ["check", str(index)]).exit_code == 0
    again = runner.invoke(app, ["compact", str(index), "--pool-factor", "2"])
    assert (again.exit_code, "pools its vectors already" in again.stderr) == (2, True)


@pytest.mark.parametrize("options", [["--pool-fixed", "0"], ["--pool-factor", "1"], ["--pool-method", "sequential"]])
def test_invalid_pooling_options_are_wrong_use(runner: CliRunner, index: Path, options: list[str]) -> None:
    assert runner.invoke(app, ["compact", str(index), *options]).exit_code == 2


def test_dims_fit_a_projection_that_info_shows(runner: CliRunner, index: Path) -> None:
    lines = compact_lines(runner, index, "--dims", 8)
    assert lines["projection"].startswith("fitted: 8 dimensions keep ")
    shown = runner.invoke(app, ["info", str(index)]).stdout
    assert "16 to 8 dimensions; they keep" in shown
    with plait.open(index) as opened:
        opened.add_embeddings(batch(200, 10)[0], batch(200, 10)[2], spans=batch(200, 10)[1])
    assert "of the energy of 80 vectors added later" in runner.invoke(app, ["info", str(index)]).stdout


def test_other_dims_after_the_fit_need_a_refit(runner: CliRunner, index: Path) -> None:
    compact_lines(runner, index, "--dims", 8)
    for dims in ("16", "off"):
        result = runner.invoke(app, ["compact", str(index), "--dims", dims])
        assert result.exit_code == 2
        assert "the whole vectors are gone; encode the texts again (plait compact --refit)" in result.stderr
    result = runner.invoke(app, ["compact", str(index), "--refit"])
    assert (result.exit_code, "made by the caller" in result.stderr) == (2, True)


def test_dims_before_there_are_enough_vectors_are_remembered(runner: CliRunner, tmp_path: Path) -> None:
    with plait.open(tmp_path / "ix", create=True, spec=SPEC) as opened:
        opened.add_embeddings(batch(0, 3)[0], batch(0, 3)[2], spans=batch(0, 3)[1])
    result = runner.invoke(app, ["compact", str(tmp_path / "ix"), "--dims", "8"])
    assert "24 vectors are too few to fit a projection to 8 dimensions" in result.stderr
    assert (
        "to 8 dimensions, when plait compact finds enough" in runner.invoke(app, ["info", str(tmp_path / "ix")]).stdout
    )
    assert runner.invoke(app, ["compact", str(tmp_path / "ix"), "--dims", "off"]).exit_code == 0
    assert "projection" not in runner.invoke(app, ["info", str(tmp_path / "ix")]).stdout


@pytest.mark.parametrize("dims", ["0", "12", "none", "-8", "8.0"])
def test_dims_must_be_a_multiple_of_eight_or_off(runner: CliRunner, index: Path, dims: str) -> None:
    assert runner.invoke(app, ["compact", str(index), f"--dims={dims}"]).exit_code == 2
