"""`plait import` and `plait dump`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import plait
from plait.cli.app import app
from transfer.conftest import FIXTURES


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_an_import_tells_what_the_codes_lost(tmp_path: Path) -> None:
    done = run("import", FIXTURES / "fast-plaid", "--to", tmp_path / "new", "--id-field", "name")
    assert done.exit_code == 0, done.output
    first, codes, best, *_ = done.stdout.splitlines()
    assert first.startswith(f"{tmp_path / 'new'}: 120 documents from fast-plaid, ")
    assert codes.startswith("  codes of 4 bits, and of 8 bits for the last stage: mean cosine 1.0000")
    assert best.startswith("  of the best 10 by the vectors of the source, the codes keep ")


def test_json_of_an_import_and_a_dump(tmp_path: Path) -> None:
    done = run("import", FIXTURES / "fast-plaid", "--to", tmp_path / "new", "--no-compress", "--json")
    report = json.loads(done.stdout)
    assert (report["form"], report["n_documents"], report["bits"]) == ("fast-plaid", 120, None)
    done = run("dump", tmp_path / "new", "--to", tmp_path / "out.parquet", "--json")
    dumped = json.loads(done.stdout)
    assert (dumped["form"], dumped["n_rows"], dumped["what"]) == ("parquet", 120, "passages")
    done = run("import", tmp_path / "out.parquet", "--to", tmp_path / "again")
    assert done.exit_code == 0, done.output
    with plait.open(tmp_path / "again") as again, plait.open(tmp_path / "new") as index:
        assert [document.id for document in again] == [document.id for document in index]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "excel"), "there is no format 'excel'"),
        (("--no-compress", "--bits", "2"), "bits and keep_8bit are for compressed vectors"),
        (("--id-field", "isbn"), "no field 'isbn'"),
        (("--model", "plait-small"), "the source has multi vectors of size 32"),
    ],
)
def test_an_import_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run("import", FIXTURES / "fast-plaid", "--to", tmp_path / "new", *arguments)
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_exists_is_not_imported_into(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine.txt").write_text("mine")
    done = run("import", FIXTURES / "fast-plaid", "--to", tmp_path / "new")
    assert done.exit_code != 0
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["mine.txt"]
