"""Results as JSON, one file for each claim, with everything that the report says about it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from plait.errors import InputError
from plait.scoring.cpu import available_targets
from plait.version import __version__
from plait_reproduce.experiment import FAMILIES, Experiment, Judgement
from plait_reproduce.verdict import VERDICTS, overall

FORMAT = 1
RESULTS = "results"

Result = dict[str, Any]


def result_of(
    experiment: Experiment, judgement: Judgement, *, tier: str, seconds: Mapping[str, float], model: str
) -> Result:
    """Everything that the report needs of one claim."""
    return {
        "format": FORMAT,
        "id": experiment.id,
        "family": experiment.family,
        "claim": experiment.claim,
        "paper": experiment.paper,
        "sets": list(experiment.sets),
        "measure": experiment.measure,
        "expects": experiment.expects,
        "differs": experiment.differs,
        "tier": tier,
        "command": f"plait reproduce {experiment.id} --{tier} --data DATA",
        "ours": judgement.ours,
        "verdict": overall(judgement.checks),
        "checks": [check.as_fields() for check in judgement.checks],
        "tables": [asdict(table) for table in judgement.tables],
        "figures": [asdict(figure) for figure in judgement.figures],
        "notes": list(judgement.notes),
        "seconds": {name: round(elapsed, 2) for name, elapsed in seconds.items()},
        "date": date.today().isoformat(),  # noqa: DTZ011 -- the day where it was run
        "version": __version__,
        "model": model,
        "machine": machine(),
    }


def machine() -> str:
    """Processor, cores, instruction set and system."""
    kind = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model_names = [
            line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        kind = model_names[0] if model_names else kind
    return f"{kind}, {os.cpu_count()} cores, {available_targets()[-1]}, {platform.system()}"


def write_result(folder: Path, result: Result) -> Path:
    file = folder / RESULTS / f"{result['id']}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(file)
    return file


def read_results(folder: Path) -> list[Result]:
    """The results of a folder, by family and number; InputError if one is not readable."""
    results = []
    for file in sorted((folder / RESULTS).glob("*.json")):
        try:
            result = json.loads(file.read_text(encoding="utf-8"))
            is_readable = result["format"] == FORMAT and result["verdict"] in VERDICTS and result["family"] in FAMILIES
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is not a result of plait reproduce ({error!r}); run the claim again") from error
        if not is_readable:
            raise InputError(f"{file} has another format than this version writes; run the claim again")
        results.append(result)
    families = list(FAMILIES)
    return sorted(results, key=lambda result: (families.index(result["family"]), claim_order(result["id"])))


def claim_order(id: str) -> tuple[str, int, str]:
    """Sorts C3 before C10, and M3c after M3."""
    digits = "".join(char for char in id if char.isdigit())
    return id[:1], int(digits or 0), id
