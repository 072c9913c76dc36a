"""Requests made from the OpenAPI document: none makes the server fail, and every answer is as the document says."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import BaseModel
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from starlette.testclient import TestClient

from plait.serve import answers, compat
from serve.api.servers import config_of
from serve.listening import listening


def does_not_fail(context: Any, response: Any, case: Any) -> Any:
    """504 is right for a request that gave the server no time."""
    parts = [part for part in (case.body, case.query) if isinstance(part, dict)]
    if response.status_code == 504 and any(part.get("timeout") is not None for part in parts):
        return None
    return not_a_server_error(context, response, case)


CHECKS = [does_not_fail, status_code_conformance, response_schema_conformance]
N_REQUESTS = 6  # for each operation, beside its example
N_RUNS, N_STEPS = 6, 10  # of requests that use the answers of others
SETTINGS: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "phases": [Phase.explicit, Phase.generate],
    "suppress_health_check": list(HealthCheck),
    "database": None,
}


class Names:
    """Names that exist on a server, for the parameters of paths. Names that are made up end in 404."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=60)
        self._numbers = itertools.count()
        self._job: str = self._post("/v1/indexes/fabrics/compact", {})["job"]["id"]

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.post(path, json=body).raise_for_status().json()
        return answer

    def of(self, method: str, path: str) -> dict[str, str]:
        """The parameters of a path; what a request may have deleted is made again."""
        if path == "/v1/indexes/{name}" and method.upper() == "DELETE":
            name = f"made-{next(self._numbers)}"
            self._post("/v1/indexes", {"name": name})
            return {"name": name}
        if path == "/v1/jobs/{id}":
            return {"id": self._job}
        if "{name}" not in path:
            return {}
        documents = [{"id": id, "text": f"Vectors are combined. {id}", "year": 2024} for id in ("intro", "loom")]
        self._post("/v1/indexes/fabrics/documents", {"documents": documents})
        return {"name": "fabrics", **({"id": "intro"} if "{id}" in path else {})}

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def url(fabrics: Path) -> Iterator[str]:
    with listening(config_of(fabrics)) as url:
        yield url


@pytest.fixture
def names(url: str) -> Iterator[Names]:
    names = Names(url)
    yield names
    names.close()


def example_of(document: dict[str, Any], operation: Any) -> dict[str, Any]:
    """The body and query of the example of an operation, as arguments of a case."""
    described = document["paths"][operation.path][operation.method]
    queries = {one["name"]: one["examples"][0] for one in _parameters(described) if "examples" in one}
    given: dict[str, Any] = {"query": queries} if queries else {}
    content = described.get("requestBody", {}).get("content", {}).get("application/json")
    if content is not None:
        schema = content["schema"]
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
        given |= {"body": schema["examples"][0], "media_type": "application/json"}
    return given


def _parameters(described: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, **one["schema"]} for one in described.get("parameters", []) if one["in"] == "query"]


@pytest.mark.filterwarnings("ignore")  # of the library that makes the requests
def test_no_request_of_the_schema_fails_the_server_or_breaks_the_schema(url: str, names: Names) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    document = httpx.get(f"{url}/openapi.json").json()
    operations = [made.ok() for made in schema.get_all_operations()]  # type: ignore[union-attr]
    statuses: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for operation in operations:
        numbers = itertools.count(1)

        def send(case: Any) -> None:
            answer = case.call_and_validate(checks=CHECKS)
            statuses[f"{case.method} {case.operation.path}"][answer.status_code] += 1

        @settings(max_examples=N_REQUESTS, **SETTINGS)
        @given(case=operation.as_strategy())
        def run(case: Any) -> None:
            if next(numbers) % 4:  # noqa: B023 -- called in this turn of the loop
                case.path_parameters = {**case.path_parameters, **names.of(case.method, case.operation.path)}
            send(case)

        parameters = names.of(operation.method, operation.path)
        send(operation.Case(path_parameters=parameters, **example_of(document, operation)))
        run()
    assert len(operations) > 20
    answered = {name for name, counts in statuses.items() if any(200 <= status < 300 for status in counts)}
    assert {name for name in statuses if name not in answered} == set()
    kinds = Counter(status // 100 for counts in statuses.values() for status in counts.elements())
    assert kinds[2] > kinds.total() / 4, kinds  # not only errors


@pytest.mark.filterwarnings("ignore")
def test_requests_that_use_the_answers_of_others_neither_fail_nor_break_the_schema(url: str) -> None:
    """Creates, adds, deletes, asks for jobs: the links between operations are those that the document implies."""
    statuses: defaultdict[str, Counter[int]] = defaultdict(Counter)
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    machine: Any = schema.as_state_machine()

    class Machine(machine):  # type: ignore[misc]  # made at run time
        def before_call(self, case: Any) -> None:
            if "name" in case.path_parameters and case.operation.path != "/v1/indexes/{name}":
                case.path_parameters["name"] = "fabrics"

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            statuses[f"{case.method} {case.operation.path}"][response.status_code] += 1
            case.validate_response(response, checks=CHECKS)

    Machine.run(settings=settings(max_examples=N_RUNS, stateful_step_count=N_STEPS, **SETTINGS))
    n_requests = sum(counts.total() for counts in statuses.values())
    assert n_requests >= N_RUNS
    assert any(status < 300 for counts in statuses.values() for status in counts)


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


def test_the_document_has_examples_for_every_answer(client: TestClient) -> None:
    document = client.get("/openapi.json").json()

    def has_example(schema: dict[str, Any]) -> bool:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
        return "examples" in schema or ("items" in schema and has_example(schema["items"]))

    contents = [
        (f"{method} {path} {status}", content)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for status, answer in operation["responses"].items()
        for content in answer.get("content", {}).values()
    ]
    assert len(contents) > 100
    assert [name for name, content in contents if "example" not in content and not has_example(content["schema"])] == []


def test_examples_of_answers_are_answers() -> None:
    models = [one for module in (answers, compat) for one in vars(module).values() if isinstance(one, type)]
    examples: list[tuple[type[BaseModel], Any]] = [
        (model, example)
        for model in models
        if issubclass(model, BaseModel) and isinstance(extra := model.model_config.get("json_schema_extra"), dict)
        for example in extra["examples"]  # type: ignore[union-attr]
    ]
    assert len(examples) > 20
    for model, example in examples:
        assert set(example) <= set(model.model_fields), model
        model.model_validate(example)
