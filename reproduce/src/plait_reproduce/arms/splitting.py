"""Split batches, measured in a process of their own: memory that a process had once stays in its books."""

from __future__ import annotations

import json
import subprocess
import sys

from plait.errors import ConfigError
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench


def split_batches(workbench: Workbench, settings: Settings) -> Outcome:
    """Settings: n_texts, length, parts. Facts as `plait_reproduce.train.splitting` has them."""
    del workbench
    code = (
        "import json, sys; from plait_reproduce.train.splitting import gradient_and_memory; "
        "print(json.dumps(gradient_and_memory(**json.loads(sys.argv[1]))))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, json.dumps(dict(settings))], capture_output=True, text=True, check=False
    )
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise ConfigError(f"split batches could not be measured ({last[0]}); is 'plait[train]' installed?")
    return Outcome(facts=json.loads(answer.stdout))
