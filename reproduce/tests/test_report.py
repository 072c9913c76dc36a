from __future__ import annotations

import json
from pathlib import Path

import pytest

from made import Counted
from plait.errors import InputError
from plait_reproduce.report import write_report
from plait_reproduce.running import run_experiment
from plait_reproduce.workbench import Workbench


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    counted = Counted()
    for id in ("C10", "C3"):
        run_experiment(counted.experiment(id), Workbench(folder, folder / "work"), to=folder, say=lambda _line: None)
    write_report(folder)
    return folder


def test_the_report_is_written_from_results_alone(report: Path) -> None:
    written = {str(file.relative_to(report)) for file in report.rglob("*") if "work" not in file.parts}
    assert {"README.md", "colbert.md", "report.html", "plots/C3-1.svg", "plots/C10-1.svg"} <= written


def test_the_same_results_give_the_same_report(report: Path) -> None:
    files = [report / "report.html", report / "colbert.md", report / "plots" / "C3-1.svg"]
    before = [file.read_text() for file in files]
    write_report(report)
    assert [file.read_text() for file in files] == before


def test_the_page_needs_nothing_else_and_escapes_what_it_shows(report: Path) -> None:
    page = (report / "report.html").read_text()
    assert "<svg" in page
    assert "A &amp; B" in page
    assert 'src="' not in page
    assert "<link" not in page


def test_claims_stand_in_the_order_of_their_numbers_and_lead_to_their_sections(report: Path) -> None:
    overview = (report / "README.md").read_text()
    assert overview.index("[C3](colbert.md#c3-holds)") < overview.index("[C10](colbert.md#c10-holds)")
    assert "b \\| more" in overview
    assert "## C3: holds" in (report / "colbert.md").read_text()


def test_a_folder_without_results_and_a_damaged_result_are_refused(report: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run plait reproduce first"):
        write_report(tmp_path)
    result = json.loads((report / "results" / "C3.json").read_text())
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "C3.json").write_text(json.dumps({**result, "verdict": "perhaps"}))
    with pytest.raises(InputError, match="another format"):
        write_report(tmp_path)
