from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.errors import ConfigError
from plait_reproduce.claims import experiments, select
from plait_reproduce.runner import KeptArms, run_experiment
from plait_reproduce.workbench import Workbench
from small_sets import Counted


def bench(folder: Path, tier: str = "quick") -> Workbench:
    return Workbench(folder / "data", folder / "work", tier=tier)


def quiet(_line: str) -> None:
    pass


def test_a_stop_repeats_no_finished_arm(tmp_path: Path) -> None:
    counted = Counted()
    counted.stop_at = "b"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(counted.experiment(), bench(tmp_path), say=quiet)
    counted.stop_at = None
    result = run_experiment(counted.experiment(), bench(tmp_path), say=quiet)
    assert counted.ran == ["a", "b"]
    assert result["verdict"] == "holds"


def test_an_arm_of_another_claim_with_the_same_key_is_not_run_again(tmp_path: Path) -> None:
    counted = Counted()
    for id in ("C3", "C4"):
        run_experiment(counted.experiment(id), bench(tmp_path), say=quiet)
    assert counted.ran == ["a", "b"]


def test_fresh_runs_finished_arms_again(tmp_path: Path) -> None:
    counted = Counted()
    run_experiment(counted.experiment(), bench(tmp_path), say=quiet)
    run_experiment(counted.experiment(), bench(tmp_path), fresh=True, say=quiet)
    assert counted.ran == ["a", "b", "a", "b"]


def test_an_arm_whose_file_was_cut_short_is_run_again(tmp_path: Path) -> None:
    counted, workbench = Counted(), bench(tmp_path)
    run_experiment(counted.experiment(), workbench, say=quiet)
    file = KeptArms(tmp_path / "work" / "arms").file(counted.experiment().arms("quick")[0], workbench)
    file.write_text(file.read_text()[:40])
    run_experiment(counted.experiment(), workbench, say=quiet)
    assert counted.ran == ["a", "b", "a"]


def test_a_result_is_written_as_json_that_says_when_and_on_what_it_was_run(tmp_path: Path) -> None:
    run_experiment(Counted().experiment(), bench(tmp_path), to=tmp_path / "report", say=quiet)
    result = json.loads((tmp_path / "report" / "results" / "C3.json").read_text())
    assert result["checks"][0]["verdict"] == "holds"
    assert {"date", "version", "machine", "model", "command", "seconds"} <= result.keys()


def test_a_tier_that_a_claim_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no full tier"):
        run_experiment(Counted().experiment(), bench(tmp_path, "full"), say=quiet)


def test_every_experiment_says_all_that_the_report_needs() -> None:
    for experiment in experiments().values():
        said = (experiment.claim, experiment.paper, experiment.measure, experiment.expects, experiment.differs)
        assert all(said), experiment.id
        assert experiment.claim.endswith("."), experiment.id
        names = [arm.name for tier in experiment.tiers for arm in experiment.arms(tier)]
        assert len(set(names)) * len(experiment.tiers) == len(names), experiment.id


def test_an_unknown_claim_is_answered_with_its_neighbours() -> None:
    assert [experiment.id for experiment in select(["c3"])] == ["C3"]
    with pytest.raises(ConfigError, match="did you mean"):
        select(["C33"])
