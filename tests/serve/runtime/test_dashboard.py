"""The dashboard for Grafana shows metrics that the server has."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from plait.deadline import Deadline
from plait.serve.protocol import AddDocuments
from plait.serve.runtime.runtime import ServeRuntime
from serve.runtime.samples import config_of, run

DASHBOARD = Path(__file__).parents[3] / "deploy/grafana/plait.json"


def test_every_metric_of_the_dashboard_exists(fabrics: Path) -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    shown = {name for panel in panels for name in re.findall(r"plait_[a-z_]+", panel["targets"][0]["expr"])}

    async def body(runtime: ServeRuntime) -> str:
        host = runtime.host("fabrics")
        await host.search(["a loom"], 2, {}, deadline=Deadline(60))
        await host.write(AddDocuments([{"id": "x", "text": "thread"}]), idempotency_key=None, owner="")
        runtime.observe(route="/health", method="GET", status=200, seconds=0.001, request_id="1", key_id="")
        runtime.metrics.rejected.labels("search").inc()
        while "plait_index_documents{" not in (text := runtime.metrics_text()[0].decode()):
            await asyncio.sleep(0.05)
        return text

    text = run(config_of(fabrics), body)
    present = {re.split(r"[ {]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    assert len(shown) > 10
    # The restarts are counted by the supervisor, which this runtime does not have; its family is declared all the same.
    declared = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    assert shown - present - declared == set()
