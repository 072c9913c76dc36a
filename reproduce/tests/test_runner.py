from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.errors import ConfigError
from plait_reproduce.claims import experiments, select
from plait_reproduce.runner import ArmCache, run_experiment
from plait_reproduce.workbench import Workbench
from small_sets import Counted


def bench(folder: Path, tier: str = "quick") -> Workbench:
    return Workbench(folder / "data", folder / "work", tier=tier)


def quiet(_line: str) -> None:
    pass


def test_a_stopped_run_repeats_no_finished_arm(tmp_path: Path) -> None:
    counted = Counted()
    counted.stop_at = "b"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(counted.experiment(), bench(tmp_path), say=quiet)
    counted.stop_at = None
    result = run_experiment(counted.experiment(), bench(tmp_path), say=quiet)
    assert counted.ran == ["a", "b"]
    assert result["verdict"] == "holds"


def test_an_arm_shared_by_two_claims_runs_once(tmp_path: Path) -> None:
    counted = Counted()
    for id in ("C3", "C4"):
        run_experiment(counted.experiment(id), bench(tmp_path), say=quiet)
    assert counted.ran == ["a", "b"]


def test_fresh_runs_finished_arms_again(tmp_path: Path) -> None:
    counted = Counted()
    run_experiment(counted.experiment(), bench(tmp_path), say=quiet)
    run_experiment(counted.experiment(), bench(tmp_path), fresh=True, say=quiet)
    assert counted.ran == ["a", "b", "a", "b"]


def test_an_arm_with_a_truncated_file_is_run_again(tmp_path: Path) -> None:
    counted, workbench = Counted(), bench(tmp_path)
    run_experiment(counted.experiment(), workbench, say=quiet)
    file = ArmCache(tmp_path / "work" / "arms").file(counted.experiment().arms("quick")[0], workbench)
    file.write_text(file.read_text()[:40])
    run_experiment(counted.experiment(), workbench, say=quiet)
    assert counted.ran == ["a", "b", "a"]


def test_a_result_records_its_date_and_machine(tmp_path: Path) -> None:
    run_experiment(Counted().experiment(), bench(tmp_path), to=tmp_path / "report", say=quiet)
    result = json.loads((tmp_path / "report" / "results" / "C3.json").read_text())
    assert result["checks"][0]["verdict"] == "holds"
    assert {"date", "version", "machine", "model", "command", "seconds"} <= result.keys()


def test_an_unsupported_tier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no full tier"):
        run_experiment(Counted().experiment(), bench(tmp_path, "full"), say=quiet)


def test_every_experiment_has_the_fields_of_the_report() -> None:
    for experiment in experiments().values():
        said = (experiment.claim, experiment.paper, experiment.measure, experiment.expects, experiment.differs)
        assert all(said), experiment.id
        assert experiment.claim.endswith("."), experiment.id
        names = [arm.name for tier in experiment.tiers for arm in experiment.arms(tier)]
        assert len(set(names)) * len(experiment.tiers) == len(names), experiment.id


def test_an_unknown_claim_is_refused_with_suggestions() -> None:
    assert [experiment.id for experiment in select(["c3"])] == ["C3"]
    with pytest.raises(ConfigError, match="did you mean"):
        select(["C33"])
