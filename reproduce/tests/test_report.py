from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.errors import InputError
from plait_reproduce.report import write_report
from plait_reproduce.report_html import page
from plait_reproduce.results import read_results
from plait_reproduce.runner import run_experiment
from plait_reproduce.workbench import Workbench
from small_sets import Counted


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    counted = Counted()
    for id in ("C10", "C3"):
        run_experiment(counted.experiment(id), Workbench(folder, folder / "work"), to=folder, say=lambda _line: None)
    write_report(folder)
    return folder


def test_the_report_is_written_from_results_alone(report: Path) -> None:
    written = {str(file.relative_to(report / "report")) for file in (report / "report").rglob("*.*")}
    assert written == {"README.md", "colbert.md", "plots/C3-1.png", "plots/C10-1.png"}


def test_the_same_results_give_the_same_report(report: Path) -> None:
    files = [report / "report" / name for name in ("README.md", "colbert.md", "plots/C3-1.png")]
    before = [file.read_bytes() for file in files]
    files[-1].unlink()
    write_report(report)
    assert [file.read_bytes() for file in files] == before


def test_a_figure_is_drawn_again_only_if_it_changed(report: Path) -> None:
    file = report / "report" / "plots" / "C3-1.png"
    before = file.stat().st_mtime_ns
    write_report(report)
    assert file.stat().st_mtime_ns == before


def test_the_html_page_needs_no_other_file_and_escapes_its_text(report: Path) -> None:
    html = page(read_results(report))
    assert "<svg" in html
    assert "A &amp; B" in html
    assert 'src="' not in html
    assert "<link" not in html


def test_claims_are_in_numeric_order_and_link_to_their_sections(report: Path) -> None:
    overview = (report / "report" / "README.md").read_text()
    assert overview.index("[C3](colbert.md#c3-holds)") < overview.index("[C10](colbert.md#c10-holds)")
    assert "b \\| more" in overview
    assert "## C3: holds" in (report / "report" / "colbert.md").read_text()


def test_a_folder_without_results_and_a_damaged_result_are_refused(report: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run plait reproduce first"):
        write_report(tmp_path)
    result = json.loads((report / "results" / "C3.json").read_text())
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "C3.json").write_text(json.dumps({**result, "verdict": "perhaps"}))
    with pytest.raises(InputError, match="another format"):
        write_report(tmp_path)
