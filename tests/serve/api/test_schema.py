"""Requests made from the OpenAPI document: none makes the server fail, and every answer is as the document says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from starlette.testclient import TestClient

from plait.serve.app import create_app
from plait.serve.runtime.runtime import ServeRuntime
from serve.api.servers import config_of

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
N_REQUESTS = 8  # for each operation


@contextmanager
def listening(fabrics: Path) -> Iterator[str]:
    """The address of a server in another thread."""
    config = config_of(fabrics)
    server = uvicorn.Server(uvicorn.Config(create_app(config, ServeRuntime(config)), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.filterwarnings("ignore")  # of the library that makes the requests
def test_no_request_of_the_schema_fails_the_server_or_breaks_the_schema(fabrics: Path) -> None:
    with listening(fabrics) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        operations = [made.ok() for made in schema.get_all_operations()]  # type: ignore[union-attr]
        for operation in operations:

            @settings(
                max_examples=N_REQUESTS,
                deadline=None,
                derandomize=True,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def run(case: schemathesis.Case) -> None:  # type: ignore[type-arg]
                case.call_and_validate(checks=CHECKS)

            run()
    assert len(operations) > 20


def test_the_document_has_examples_for_every_body(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    named = [
        content["schema"]["$ref"].rsplit("/", 1)[-1]
        for path in document["paths"].values()
        for operation in path.values()
        for media, content in operation.get("requestBody", {}).get("content", {}).items()
        if media == "application/json" and "$ref" in content["schema"]
    ]
    assert named
    assert [name for name in named if not ("examples" in schemas[name] or "example" in schemas[name])] == []
